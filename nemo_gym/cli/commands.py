"""Every command of `gym`, as data: what it runs, what it says about itself, which flags it takes."""

from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass

from nemo_gym.cli.dispatch import dispatch
from nemo_gym.cli.flags import (
    ConfigFlag,
    EntrypointFlag,
    Flag,
    LiteralFlag,
    NamesFlag,
    SearchDirFlag,
    SecretFlag,
    SelectorFlag,
    SwitchFlag,
    TextFlag,
    UrlFlag,
    Words,
)


@dataclass(frozen=True)
class Command:
    """`target` is `"module:function"`, called without arguments, or a callable that is given `(args, overrides)`.

    `config` is `"module:class"` of the model that reads the command's part of the config, for `+help=true`.
    """

    target: str | Callable[[Namespace, list[str]], None]
    summary: str
    flags: tuple[Flag, ...] = ()
    words: Words | None = None
    example: str = ""
    config: str = ""


CONFIG = ConfigFlag(names=("--config",), metavar="PATH", help="a config file; may be repeated")
BENCHMARK = SelectorFlag(names=("--benchmark",), help="a benchmark's config; may be repeated")
RESOURCES_SERVER = SelectorFlag(names=("--resources-server",), help="a resources server's config; may be repeated")
MODEL_TYPE = SelectorFlag(names=("--model-type",), help="the model server that serves the policy", repeatable=False)
SELECT = (
    CONFIG,
    BENCHMARK,
    SelectorFlag(names=("--environment",), help="an environment's config; may be repeated"),
    RESOURCES_SERVER,
    MODEL_TYPE,
    SelectorFlag(names=("--agent-type",), help="the agent to run instead of the environment's own", repeatable=False),
)
ALLOW_PAIRING = SwitchFlag(
    names=("--allow-unsupported-pairing",),
    key="allow_unsupported_pairing",
    help="run an agent or model server with an environment that does not list it",
)
SEARCH_DIR = SearchDirFlag(names=("--search-dir",), help="another folder to find components in; may be repeated")
MODEL = (
    TextFlag(names=("--model", "-m"), key="policy_model_name", metavar="NAME", help="the policy model's name"),
    UrlFlag(names=("--model-url",), key="policy_base_url", metavar="URL", help="where the policy model is served"),
    SecretFlag(
        names=("--model-api-key",),
        key="policy_api_key",
        metavar="KEY",
        help="its API key; env:NAME reads it from a variable and keeps it out of the process list",
    ),
)
START = (*SELECT, ALLOW_PAIRING, SEARCH_DIR, *MODEL)
ONE_SERVER = EntrypointFlag(names=("--resources-server",), key="entrypoint", help="the resources server")
JSON = SwitchFlag(names=("--json",), key="json", help="print JSON")
PORT = LiteralFlag(
    names=("--port",), key="head_server.port", metavar="P", help="the head server port of the run that is meant"
)
INPUT = TextFlag(names=("--input", "-i"), key="input_jsonl_fpath", metavar="FILE", help="the rows, as JSON lines")
OUTPUT = TextFlag(names=("--output", "-o"), key="output_jsonl_fpath", metavar="FILE", help="where results are written")
PROMPT = TextFlag(names=("--prompt-config",), key="prompt_config", metavar="PATH", help="prompt templates for the rows")
HEALTH = (
    SwitchFlag(names=("--no-health-check",), key="disable_health_check", help="skip the health checks at the end"),
    LiteralFlag(
        names=("--health-check-workers",), key="health_check_workers", metavar="N", help="processes that check"
    ),
    NamesFlag(
        names=("--health-check-ignore",), key="health_check_ignored_checks", metavar="A,B", help="checks to leave out"
    ),
)
REQUIRE_COMPLETE = SwitchFlag(
    names=("--require-complete",), key="require_complete", help="end with 1 when a rollout is not measured"
)
COLLECT = (
    SwitchFlag(names=("--no-serve",), help="use the servers that already run instead of starting some"),
    SwitchFlag(names=("--resume",), key="resume_from_cache", help="go on with the results that are already there"),
    SwitchFlag(
        names=("--resume-anyway",), key="resume_anyway", help="go on although config, model, input or code differ"
    ),
    SwitchFlag(names=("--overwrite",), key="overwrite", help="delete the results that are already there"),
    REQUIRE_COMPLETE,
    TextFlag(names=("--agent", "-a"), key="agent_name", metavar="NAME", help="the agent instance that gets the rows"),
    INPUT,
    OUTPUT,
    LiteralFlag(names=("--limit",), key="limit", metavar="N", help="use only the first N rows"),
    LiteralFlag(
        names=("--num-repeats",), key="num_repeats", metavar="N", help="rollouts per row, or {agent: N, _default: N}"
    ),
    SwitchFlag(
        names=("--interleave-repeats",), key="interleave_repeats", help="run every row once before any row again"
    ),
    PROMPT,
    LiteralFlag(
        names=("--concurrency",), key="num_samples_in_parallel", metavar="N", help="rollouts in flight at once"
    ),
    TextFlag(
        names=("--split",), key="split", metavar="SPLIT", help="the rows of the data sets declared for this split"
    ),
    LiteralFlag(
        names=("--temperature",),
        key="responses_create_params.temperature",
        metavar="T",
        help="sampling temperature of every row",
    ),
    LiteralFlag(names=("--top-p",), key="responses_create_params.top_p", metavar="P", help="top-p of every row"),
    LiteralFlag(
        names=("--max-output-tokens",),
        key="responses_create_params.max_output_tokens",
        metavar="N",
        help="token limit of every answer",
    ),
    SwitchFlag(names=("--disable-aggregation",), key="disable_aggregation", help="compute no metrics at the end"),
    *HEALTH,
)


def _start(args: Namespace, overrides: list[str]) -> None:
    dispatch("nemo_gym.cli.env:start_detached" if args.detach else "nemo_gym.cli.env:run", overrides)


def _stop(args: Namespace, overrides: list[str]) -> None:
    from nemo_gym.cli.runs import stop

    stop(overrides, everything=args.all)


def _ps(args: Namespace, overrides: list[str]) -> None:
    from nemo_gym.cli.ps import ps

    ps(overrides, as_json=args.json, watch=args.watch)


def _restart(args: Namespace, overrides: list[str]) -> None:
    from nemo_gym.cli.ps import restart

    restart(args.name, overrides)


def _logs(args: Namespace, overrides: list[str]) -> None:
    from nemo_gym.cli.runs import logs

    logs(args.name, overrides, follow=args.follow)


def _resolve(args: Namespace, overrides: list[str]) -> None:
    dispatch("nemo_gym.cli.env:" + ("dump_origins" if args.origin else "dump_config"), overrides)


def _validate(args: Namespace, overrides: list[str]) -> None:
    from nemo_gym.errors import UsageError

    if args.name:
        raise UsageError(
            "Checking a catalog entry by name is not available yet: choose a config with --environment, --benchmark, "
            "--resources-server or --config."
        )
    dispatch("nemo_gym.cli.env:validate", overrides)


def _test(args: Namespace, overrides: list[str]) -> None:
    from nemo_gym.errors import UsageError

    if args.name:
        raise UsageError("Testing a catalog entry by name is not available yet: name a server by --resources-server.")
    dispatch("nemo_gym.cli.env:test", overrides)


def _eval_run(args: Namespace, overrides: list[str]) -> None:
    from nemo_gym.errors import UsageError

    if args.no_serve and args.agent_type:
        raise UsageError(
            "--agent-type composes servers, which --no-serve does not start: choose a running one by --agent."
        )
    dispatch("nemo_gym.cli.eval:" + ("collect_rollouts" if args.no_serve else "e2e_rollout_collection"), overrides)


GROUPS = {
    "dataset": "prepare data",
    "env": "start, stop and inspect environments",
    "eval": "run evaluations and read their results",
    "dev": "work on Gym itself",
}

VERSION_TARGET = "nemo_gym.cli.general:version"

COMMANDS = {
    "dataset render": Command(
        "nemo_gym.cli.dataset:materialize_prompts_cli",
        "fill prompt templates from rows",
        (INPUT, PROMPT, OUTPUT, SEARCH_DIR),
        example="gym dataset render --input rows.jsonl --prompt-config prompt.yaml --output out.jsonl",
        config="nemo_gym.cli.command_configs:MaterializePromptsConfig",
    ),
    "dataset collate": Command(
        "nemo_gym.cli.dataset:prepare_data",
        "collect, check and measure the data sets a config declares",
        (
            CONFIG,
            RESOURCES_SERVER,
            MODEL_TYPE,
            SEARCH_DIR,
            TextFlag(
                names=("--mode",),
                key="mode",
                choices=("train_preparation", "example_validation"),
                help="which data sets: those for runs, or the shipped examples",
            ),
            TextFlag(names=("--output-dir",), key="output_dirpath", metavar="DIR", help="where the files are written"),
            SwitchFlag(names=("--download",), key="should_download", help="download data sets that are not there"),
        ),
        example="gym dataset collate --resources-server mcqa --mode example_validation --output-dir data",
        config="nemo_gym.train_data_utils:TrainDataProcessorConfig",
    ),
    "env resolve": Command(
        _resolve,
        "print the composed config, secrets hidden",
        (
            SwitchFlag(names=("--origin",), help="print who set each value instead: a file, env.yaml or an override"),
            *START,
        ),
        example="gym env resolve --resources-server mcqa --model-type openai_model --origin",
    ),
    "env schema": Command(
        "nemo_gym.cli.env:schema",
        "print the JSON schema of a server's rows",
        (ONE_SERVER, SEARCH_DIR),
        example="gym env schema --resources-server mcqa",
        config="nemo_gym.cli.command_configs:RunConfig",
    ),
    "env validate": Command(
        _validate,
        "check a config without starting anything",
        (
            SwitchFlag(names=("--strict",), key="strict", help="also demand the policy model's settings"),
            JSON,
            *START,
        ),
        words=Words(names=("name",), metavar="NAME", help="a catalog entry"),
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
        "run a server's own tests in its own venv",
        (ONE_SERVER, SEARCH_DIR),
        words=Words(names=("name",), metavar="NAME", help="a catalog entry"),
        example="gym env test --resources-server mcqa",
        config="nemo_gym.cli.command_configs:TestConfig",
    ),
    "env start": Command(
        _start,
        "start the servers of an environment and keep them running",
        (*START, SwitchFlag(names=("--detach",), help="return when they are ready and leave them running")),
        example="gym env start --resources-server mcqa --model-type openai_model",
    ),
    "env prefetch": Command(
        "nemo_gym.cli.env:prefetch",
        "build the servers' venvs and start nothing",
        (*SELECT, ALLOW_PAIRING, SEARCH_DIR),
        example="gym env prefetch --resources-server mcqa --model-type openai_model",
    ),
    "env status": Command("nemo_gym.cli.env:status", "list the running servers and their health", (JSON,)),
    "env stop": Command(
        _stop,
        "stop running servers",
        (PORT, SwitchFlag(names=("--all",), help="stop every run of this user")),
    ),
    "env restart": Command(
        _restart,
        "start a running server anew, on the address it has",
        (PORT,),
        words=Words(names=("name",), metavar="NAME", help="a server instance, as `gym env status` lists it"),
        example="gym env restart policy_model",
    ),
    "env logs": Command(
        _logs,
        "print what a running server has written",
        (SwitchFlag(names=("--follow", "-f"), help="keep printing what comes"), PORT),
        words=Words(names=("name",), metavar="NAME", help="a server instance, as `gym env status` lists it"),
        example="gym env logs policy_model -f",
    ),
    "eval prepare": Command(
        "nemo_gym.cli.eval:prepare_benchmark",
        "run the scripts that fetch and write the benchmarks' rows",
        (CONFIG, BENCHMARK, SEARCH_DIR),
        example="gym eval prepare --benchmark aime24",
        config="nemo_gym.cli.command_configs:PrepareBenchmarkConfig",
    ),
    "eval run": Command(
        _eval_run,
        "run an agent on tasks and score the results",
        (*START, *COLLECT),
        example="gym eval run --resources-server mcqa --output results/mcqa.jsonl --limit 5",
        config="nemo_gym.rollout_collection:EvalRunConfig",
    ),
    "eval aggregate": Command(
        "nemo_gym.cli.eval:aggregate_rollouts",
        "merge result files and compute their metrics",
        (
            CONFIG,
            TextFlag(
                names=("--input-glob", "-i"), key="input_glob", metavar="GLOBS", help="result files, comma separated"
            ),
            OUTPUT,
            SwitchFlag(
                names=("--merge-anyway",),
                key="merge_anyway",
                help="merge files of differing runs, or with rollouts that several of them hold",
            ),
            REQUIRE_COMPLETE,
            *HEALTH,
        ),
        example="gym eval aggregate --input-glob 'results/part-*.jsonl' --output results/all.jsonl",
        config="nemo_gym.rollout_collection:RolloutAggregationConfig",
    ),
    "eval profile": Command(
        "nemo_gym.cli.eval:reward_profile",
        "compute rewards and pass rates per task from results",
        (
            TextFlag(
                names=("--inputs",),
                key="materialized_inputs_jsonl_fpath",
                metavar="FILE",
                help="the ..._materialized_inputs.jsonl of the run",
            ),
            TextFlag(names=("--rollouts",), key="rollouts_jsonl_fpath", metavar="FILE", help="the results of the run"),
        ),
        example="gym eval profile --inputs r_materialized_inputs.jsonl --rollouts r.jsonl",
        config="nemo_gym.cli.command_configs:RewardProfileConfig",
    ),
    "ps": Command(
        _ps,
        "show what a run's servers and rollouts are doing, and why it is stuck",
        (JSON, SwitchFlag(names=("--watch", "-w"), help="show it again every second until Ctrl-C"), PORT),
        example="gym ps --watch",
    ),
    "dev test": Command("nemo_gym.cli.dev:dev_test", "run Gym's own tests"),
}

NOT_YET = {
    "list": ("benchmarks", "environments", "agents", "models", "resources-servers"),
    "search": (),
    "dataset": ("upload", "download", "rm", "migrate"),
    "env": ("init", "publish"),
    "eval": ("health-check", "export", "reverify", "submit", "compare"),
}
"""Commands and whole groups of NeMo Gym 0.7 that this version does not have yet."""

NOT_YET_FLAGS = {
    "env test": ("--all", "--kind", "--update-expected", "--json"),
    "env validate": ("--kind", "--manifest", "--sync"),
}
"""Flags of commands this version has, for what it does not do yet."""
