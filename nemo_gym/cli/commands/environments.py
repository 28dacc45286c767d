"""`gym env …` that makes, describes and checks environments."""

from argparse import Namespace

from nemo_gym.cli.commands.command import Command
from nemo_gym.cli.commands.flag_sets import ENTRY, ENTRY_OR_FILE, FILE, JSON, KIND, ONE_SERVER, SEARCH_DIR, START
from nemo_gym.cli.dispatch import dispatch
from nemo_gym.cli.flags import EntrypointFlag, RangeFlag, SwitchFlag, TextFlag, Words, WorkloadFlag
from nemo_gym.cli.one_file import FromFlag, is_file


def _resolve(args: Namespace, overrides: list[str]) -> None:
    dispatch("nemo_gym.cli.env:" + ("dump_origins" if args.origin else "dump_config"), overrides)


def _init(args: Namespace, overrides: list[str]) -> None:
    from nemo_gym.errors import UsageError

    targets = [flag for flag in ("resources_server", "environment", "benchmark") if getattr(args, flag)]
    if len(targets) > 1:
        raise UsageError("--resources-server, --environment and --benchmark exclude each other: make one at a time.")
    if file := getattr(args, "from"):
        if targets or overrides:
            raise UsageError("--from says all there is to say: leave out the other options.")
        from nemo_gym.cli.one_file import init

        init(file)
        return
    if args.higher_is_better and args.lower_is_better:
        raise UsageError("--higher-is-better and --lower-is-better exclude each other.")
    dispatch("nemo_gym.cli.scaffold:init", overrides)


def _is_given(key: str, overrides: list[str]) -> bool:
    return any(token.lstrip("+").startswith(f"{key}=") for token in overrides)


def _validate(args: Namespace, overrides: list[str]) -> None:
    if is_file(args.name):
        from nemo_gym.cli.onboarding import validate_file

        validate_file(args.name)
        return
    is_described = _is_given("onboarding_name", overrides) or _is_given("manifest_path", overrides)
    dispatch("nemo_gym.cli.onboarding:validate" if is_described else "nemo_gym.cli.env:validate", overrides)


def _test(args: Namespace, overrides: list[str]) -> None:
    from nemo_gym.errors import UsageError

    if is_file(args.name):
        from nemo_gym.cli.one_file import test

        test(args.name)
        return
    named, server = _is_given("onboarding_name", overrides), _is_given("entrypoint", overrides)
    if named and server:
        raise UsageError("NAME means an environment and --resources-server a server: choose one of them.")
    if args.all and (named or server):
        raise UsageError("--all means every server: leave out NAME and --resources-server.")
    if not named and any(_is_given(key, overrides) for key in ("catalog_kind", "update_expected", "json")):
        raise UsageError("--kind, --update-expected and --json are for the verifier of an environment: give its NAME.")
    if not (named or server or args.all):
        raise UsageError("say what to test: NAME of an environment, --resources-server NAME, or --all.")
    target = "onboarding:test" if named else "env:test_all" if args.all else "env:test"
    dispatch(f"nemo_gym.cli.{target}", overrides)


def _audit(args: Namespace, overrides: list[str]) -> None:
    from nemo_gym.errors import UsageError

    overrides = [token for token in overrides if token != "+json=true"]
    if not args.all:
        from nemo_gym.cli.audit import audit

        audit(args.name, overrides, as_json=args.json)
        return
    if args.name:
        raise UsageError("--all means every resources server: leave out NAME.")
    from nemo_gym.cli.all_audits import audit_all

    audit_all(overrides, as_json=args.json)


ENVIRONMENTS = {
    "env resolve": Command(
        _resolve,
        "print the composed config, secrets hidden",
        (
            SwitchFlag(names=("--origin",), help="print who set each value instead: a file, env.yaml or an override"),
            *START,
        ),
        words=FILE,
        example="gym env resolve --resources-server mcqa --model-type openai_model --origin",
    ),
    "env schema": Command(
        "nemo_gym.cli.env:schema",
        "print the JSON schema of a server's rows",
        (ONE_SERVER, SEARCH_DIR),
        example="gym env schema --resources-server mcqa",
        config="nemo_gym.cli.command_configs:RunConfig",
    ),
    "env init": Command(
        _init,
        "make a new resources server, environment or benchmark",
        (
            EntrypointFlag(names=("--resources-server",), key="entrypoint", help="make a resources server"),
            WorkloadFlag(names=("--environment",), key="environment", help="make an environment"),
            WorkloadFlag(names=("--benchmark",), key="benchmark", help="make a benchmark"),
            FromFlag(names=("--from",), metavar="FILE.py", help="make a resources server of an environment's file"),
            TextFlag(
                names=("--profile",),
                key="profile",
                choices=(
                    "custom-gym-verifier",
                    "custom-gym-agent-loop",
                    "external-agent-loop",
                    "external-rollout-driver",
                ),
                help="which part of a rollout will be its own (default: custom-gym-verifier)",
            ),
            TextFlag(
                names=("--reuse-verifier",),
                key="reuse_verifier",
                metavar="NAME",
                help="score with this resources server instead of a new one",
            ),
            RangeFlag(names=("--reward-range",), key="reward_range", help="both ends of a reused verifier's rewards"),
            SwitchFlag(names=("--higher-is-better",), key="higher_is_better", help="its higher end is the good one"),
            SwitchFlag(
                names=("--lower-is-better",),
                key="higher_is_better",
                value="false",
                help="its lower end is the good one",
            ),
            SEARCH_DIR,
        ),
        example="gym env init --environment word_game",
    ),
    "env validate": Command(
        _validate,
        "check a config, or an environment's manifest, config and data, without starting anything",
        (
            KIND,
            TextFlag(names=("--manifest",), key="manifest_path", metavar="PATH", help="a manifest, by its path"),
            SwitchFlag(names=("--sync",), key="sync", help="take into the manifest what the config says otherwise"),
            SwitchFlag(names=("--strict",), key="strict", help="also demand the policy model's settings"),
            JSON,
            *START,
        ),
        words=ENTRY_OR_FILE,
        example="gym env validate example_single_tool_call",
    ),
    "env packages": Command(
        "nemo_gym.cli.env:pip_list",
        "list the packages a server runs with",
        (
            ONE_SERVER,
            SEARCH_DIR,
            SwitchFlag(names=("--outdated",), key="outdated", help="only those with a newer version"),
            SwitchFlag(names=("--json",), key="format", value="json", help="print JSON"),
        ),
        example="gym env packages --resources-server mcqa",
        config="nemo_gym.cli.command_configs:PipListConfig",
    ),
    "env test": Command(
        _test,
        "run a server's own tests in its own venv, or the cases of an environment's verifier",
        (
            ONE_SERVER,
            SwitchFlag(names=("--all",), help="test every server that has a README.md, and its example data"),
            KIND,
            SwitchFlag(
                names=("--update-expected",),
                key="update_expected",
                help="write the rewards that are seen into the cases",
            ),
            JSON,
            SEARCH_DIR,
        ),
        words=ENTRY_OR_FILE,
        example="gym env test --resources-server mcqa",
        config="nemo_gym.cli.command_configs:TestConfig",
    ),
    "env publish": Command(
        "nemo_gym.cli.onboarding:publish",
        "say whether an environment is ready for others; nothing is sent anywhere",
        (KIND, JSON, SEARCH_DIR),
        words=ENTRY,
        example="gym env publish example_single_tool_call",
    ),
    "env audit": Command(
        _audit,
        "check that right answers score in full, and that doing nothing and known tricks don't pay",
        (SwitchFlag(names=("--all",), help="audit every resources server, a line each"), JSON, SEARCH_DIR),
        words=Words(
            names=("name",), metavar="NAME", help="a resources server, NAME/FLAVOR, an environment, or a one-file one"
        ),
        example="gym env audit mcqa",
    ),
}
