"""The golden table: what was typed → the overrides the command runs from, for every flag of every command."""

from collections.abc import Callable

import pytest

from nemo_gym.cli.command_line import cut, parse
from nemo_gym.cli.commands import COMMANDS
from nemo_gym.cli.flags import SearchDirFlag
from nemo_gym.cli.parsers import build_parsers

PARSERS = build_parsers()

Overrides = Callable[[str], list[str]]


@pytest.fixture
def overrides(monkeypatch: pytest.MonkeyPatch) -> Overrides:
    """Overrides of a line; selectors resolve to `<flag>:<name>` without looking at any file."""

    def resolve(flag: str, value: str) -> str:
        return f"{flag.lstrip('-')}:{value}.yaml"

    monkeypatch.setattr("nemo_gym.config.selectors.resolve_selector", resolve)

    def overrides_of(line: str) -> list[str]:
        return parse(PARSERS, cut(line.split())).overrides()

    return overrides_of


STARTING = ("env start", "env resolve", "env validate", "eval run")
START_FLAGS = [
    ("--config a.yaml", ["+config_paths=[a.yaml]"]),
    ("--config a.yaml --config b.yaml", ["+config_paths=[a.yaml,b.yaml]"]),
    ("--config a,b.yaml", ['+config_paths=["a,b.yaml"]']),
    ("--benchmark aime24", ["+config_paths=[benchmark:aime24.yaml]"]),
    ("--environment x", ["+config_paths=[environment:x.yaml]"]),
    (
        "--resources-server mcqa --resources-server m/f",
        ["+config_paths=[resources-server:mcqa.yaml,resources-server:m/f.yaml]"],
    ),
    ("--model-type openai_model", ["+config_paths=[model-type:openai_model.yaml]"]),
    ("--agent-type simple_agent", ["+config_paths=[agent-type:simple_agent.yaml]"]),
    ("--allow-unsupported-pairing", ["+allow_unsupported_pairing=true"]),
    ("--model gpt-4.1", ["+policy_model_name=gpt-4.1"]),
    ("-m Qwen/Qwen3-4B", ["+policy_model_name=Qwen/Qwen3-4B"]),
    ("--model 4", ['+policy_model_name="4"']),
    ("--model-url http://vllm:8000/v1", ["+policy_base_url=http://vllm:8000/v1"]),
    ("--model-url [http://a/v1,http://b/v1]", ["+policy_base_url=[http://a/v1,http://b/v1]"]),
    ("--model-api-key EMPTY", ["+policy_api_key=EMPTY"]),
    ("--model-api-key env:KEY", ['+policy_api_key="${oc.env:KEY}"']),
    ("-v", ["+verbose=true"]),
]

COLLECT_FLAGS = [
    ("--no-serve", []),
    ("--resume", ["+resume_from_cache=true"]),
    ("--overwrite", ["+overwrite=true"]),
    ("--resume-anyway", ["+resume_anyway=true"]),
    ("--require-complete", ["+require_complete=true"]),
    ("--agent mcqa_simple_agent", ["+agent_name=mcqa_simple_agent"]),
    ("-a a", ["+agent_name=a"]),
    ("--input rows.jsonl", ["+input_jsonl_fpath=rows.jsonl"]),
    ("-i rows(1)=x.jsonl", ['+input_jsonl_fpath="rows(1)=x.jsonl"']),
    ("--output results/r.jsonl", ["+output_jsonl_fpath=results/r.jsonl"]),
    ("-o a,b.jsonl", ['+output_jsonl_fpath="a,b.jsonl"']),
    ("--limit 5", ["+limit=5"]),
    ("--limit null", ["+limit=null"]),
    ("--num-repeats 2", ["+num_repeats=2"]),
    ("--num-repeats {agent_a:4,_default:1}", ["+num_repeats={agent_a:4,_default:1}"]),
    ("--interleave-repeats", ["+interleave_repeats=true"]),
    ("--prompt-config prompts/p.yaml", ["+prompt_config=prompts/p.yaml"]),
    ("--prompt-config null", ["+prompt_config=null"]),
    ("--concurrency 32", ["+num_samples_in_parallel=32"]),
    ("--split train", ["+split=train"]),
    ("--temperature 0.5", ["+responses_create_params.temperature=0.5"]),
    ("--top-p 0.9", ["+responses_create_params.top_p=0.9"]),
    ("--max-output-tokens 99", ["+responses_create_params.max_output_tokens=99"]),
    ("--disable-aggregation", ["+disable_aggregation=true"]),
    ("--no-health-check", ["+disable_health_check=true"]),
    ("--health-check-workers 2", ["+health_check_workers=2"]),
    ("--health-check-ignore a,b", ['+health_check_ignored_checks=["a","b"]']),
]

OTHER_FLAGS = [
    ("eval submit --config s.yaml --dry-run", []),
    ("eval submit --resolve-only --json", ["+json=true"]),
    ("jobs list --json", ["+json=true"]),
    ("jobs status --json", ["+json=true"]),
    ("jobs cancel a1 --benchmark x", []),
    ("jobs logs a1 --benchmark x --step job --follow", []),
    ("eval aggregate --merge-anyway --require-complete", ["+merge_anyway=true", "+require_complete=true"]),
    ("env resolve --origin", []),
    ("env start --detach", []),
    ("env status --json", ["+json=true"]),
    ("--json env status", ["+json=true"]),
    ("env stop --port 11001 --all", ["+head_server.port=11001"]),
    ("env logs judge --port 11001 --follow", ["+head_server.port=11001"]),
    ("env restart judge --port 11001", ["+head_server.port=11001"]),
    ("ps --json --watch --port 11001", ["+json=true", "+head_server.port=11001"]),
    ("--json ps -w", ["+json=true"]),
    ("env validate --strict --json", ["+strict=true", "+json=true"]),
    ("env validate +limit=3", ["+limit=3"]),
    ("env schema --resources-server mcqa", ["+entrypoint=resources_servers/mcqa"]),
    ("env test --resources-server mcqa +a=1", ["+entrypoint=resources_servers/mcqa", "+a=1"]),
    (
        "env packages --resources-server mcqa --outdated --json",
        ["+entrypoint=resources_servers/mcqa", "+outdated=true", "+format=json"],
    ),
    ("env prefetch --config c.yaml --benchmark b", ["+config_paths=[c.yaml,benchmark:b.yaml]"]),
    (
        "env prefetch --environment e --resources-server r",
        ["+config_paths=[environment:e.yaml,resources-server:r.yaml]"],
    ),
    ("env prefetch --model-type m --agent-type a", ["+config_paths=[model-type:m.yaml,agent-type:a.yaml]"]),
    ("env prefetch --allow-unsupported-pairing", ["+allow_unsupported_pairing=true"]),
    ("eval prepare --benchmark b --config c.yaml", ["+config_paths=[c.yaml,benchmark:b.yaml]"]),
    ("eval aggregate --config c.yaml", ["+config_paths=[c.yaml]"]),
    ("eval aggregate --input-glob a/*.jsonl,b/*.jsonl", ['+input_glob="a/*.jsonl,b/*.jsonl"']),
    ("eval aggregate -i a.jsonl -o b.jsonl", ["+input_glob=a.jsonl", "+output_jsonl_fpath=b.jsonl"]),
    (
        "eval aggregate --no-health-check --health-check-workers 1 --health-check-ignore x",
        ["+disable_health_check=true", "+health_check_workers=1", '+health_check_ignored_checks=["x"]'],
    ),
    (
        "eval profile --inputs m.jsonl --rollouts r.jsonl",
        ["+materialized_inputs_jsonl_fpath=m.jsonl", "+rollouts_jsonl_fpath=r.jsonl"],
    ),
    (
        "dataset render -i a.jsonl --prompt-config p.yaml -o b.jsonl",
        ["+input_jsonl_fpath=a.jsonl", "+prompt_config=p.yaml", "+output_jsonl_fpath=b.jsonl"],
    ),
    (
        "dataset collate --config c.yaml --resources-server r --model-type m",
        ["+config_paths=[c.yaml,resources-server:r.yaml,model-type:m.yaml]"],
    ),
    (
        "dataset collate --mode example_validation --output-dir d --download",
        ["+mode=example_validation", "+output_dirpath=d", "+should_download=true"],
    ),
    ("list environments words --json", ["+component_name=words", "+json=true"]),
    (
        "list environments --kind benchmark --domain math --modality text",
        ["+catalog_kind=benchmark", "+domain=math", "+modality=text"],
    ),
    (
        "list environments --licensing Apache-2.0 --status no-manifest --lifecycle active",
        ["+licensing=Apache-2.0", "+status=no-manifest", "+lifecycle=active"],
    ),
    ("list benchmarks --json", ["+json=true"]),
    ("list resources-servers a/b --json", ["+component_name=a/b", "+json=true"]),
    ("list agents --json", ["+json=true"]),
    ("list models --json +x=1", ["+json=true", "+x=1"]),
    ("search --json agents words", ["+json=true"]),
    ("env init --resources-server r", ["+entrypoint=resources_servers/r"]),
    (
        "env init --environment e --profile external-agent-loop",
        ["+scaffold_kind=environment", "+scaffold_name=e", "+profile=external-agent-loop"],
    ),
    (
        "env init --benchmark b --reuse-verifier r --reward-range -1 2.5 --higher-is-better",
        [
            "+scaffold_kind=benchmark",
            "+scaffold_name=b",
            "+reuse_verifier=r",
            "+reward_range=[-1.0,2.5]",
            "+higher_is_better=true",
        ],
    ),
    ("env init --lower-is-better", ["+higher_is_better=false"]),
    ("env init --from tiny.py", []),
    ("env validate e --kind benchmark", ["+onboarding_name=e", "+catalog_kind=benchmark"]),
    ("env validate --manifest m(1).yaml --sync", ['+manifest_path="m(1).yaml"', "+sync=true"]),
    (
        "env test e --kind environment --update-expected --json",
        [
            "+onboarding_name=e",
            "+catalog_kind=environment",
            "+update_expected=true",
            "+json=true",
        ],
    ),
    ("env test --all", []),
    ("env audit e --json", ["+json=true"]),
    ("env audit --all", []),
    ("env publish e --kind environment --json", ["+onboarding_name=e", "+catalog_kind=environment", "+json=true"]),
]


@pytest.mark.parametrize("command", STARTING)
@pytest.mark.parametrize(("line", "expected"), START_FLAGS)
def test_flags_that_choose_what_runs(overrides: Overrides, command: str, line: str, expected: list[str]) -> None:
    assert overrides(f"{command} {line}") == expected


@pytest.mark.parametrize(("line", "expected"), COLLECT_FLAGS)
def test_flags_of_a_collection(overrides: Overrides, line: str, expected: list[str]) -> None:
    assert overrides(f"eval run {line}") == expected


@pytest.mark.parametrize(("line", "expected"), OTHER_FLAGS)
def test_flags_of_other_commands(overrides: Overrides, line: str, expected: list[str]) -> None:
    assert overrides(line) == expected


def test_every_flag_is_in_the_table() -> None:
    everywhere = [line for line, _ in START_FLAGS]
    lines = [
        *(f"{command} {line}" for command in STARTING for line in everywhere),
        *(f"eval run {line}" for line, _ in COLLECT_FLAGS),
        *(line for line, _ in OTHER_FLAGS),
    ]
    words = {name: {w for line in lines if line.startswith(name) for w in line.split()} for name in COMMANDS}
    untested = [
        f"{name} {flag.names[0]}"
        for name, command in COMMANDS.items()
        for flag in command.flags
        if not isinstance(flag, SearchDirFlag) and not words[name].intersection(flag.names)
    ]
    assert untested == []


def test_config_files_are_merged_in_the_order_of_precedence(overrides: Overrides) -> None:
    line = (
        "eval run +config_paths=[raw1.yaml,raw2.yaml] --agent-type at --model-type mt --resources-server rs "
        "--environment en --benchmark be --config c1.yaml +config_paths=raw3.yaml --config c2.yaml"
    )
    selected = "benchmark:be.yaml,environment:en.yaml,resources-server:rs.yaml,model-type:mt.yaml,agent-type:at.yaml"
    paths = f"c1.yaml,c2.yaml,{selected},raw1.yaml,raw2.yaml,raw3.yaml"
    assert overrides(line) == [f"+config_paths=[{paths}]"]


@pytest.mark.parametrize("token", ["++config_paths=[b.yaml]", "+config_paths=${mine}"])
def test_config_paths_only_the_parser_understands_are_left_to_it(overrides: Overrides, token: str) -> None:
    assert overrides(f"env start --config a.yaml {token}") == ["+config_paths=[a.yaml]", token]


def test_verbosity_comes_first_then_files_then_flags_then_raw_overrides(overrides: Overrides) -> None:
    line = "+x=1 eval run --limit 2 +y=[a,b] --config a.yaml ~z --agent ag -v w=3"
    assert overrides(line) == [
        "+verbose=true",
        "+config_paths=[a.yaml]",
        "+agent_name=ag",
        "+limit=2",
        "+x=1",
        "+y=[a,b]",
        "~z",
        "w=3",
    ]


def test_a_raw_override_beats_the_flag_for_the_same_key(overrides: Overrides) -> None:
    assert overrides("eval run --limit 4 +limit=5") == ["+limit=5"]
    assert overrides("eval run --limit 4 ++limit=5") == ["+limit=4", "++limit=5"]
    assert overrides("eval run --temperature 1 +responses_create_params.temperature=0") == [
        "+responses_create_params.temperature=0"
    ]


def test_verbose_is_not_given_twice(overrides: Overrides) -> None:
    assert overrides("env start -v +verbose=true") == ["+verbose=true"]


@pytest.mark.parametrize("line", ["-v env status", "env -v status", "env status -v", "env status --verb"])
def test_verbose_is_accepted_anywhere(line: str) -> None:
    assert parse(PARSERS, cut(line.split())).overrides() == ["+verbose=true"]


def test_flags_and_overrides_mix_in_any_order(overrides: Overrides) -> None:
    expected = ["+agent_name=a", "+limit=1", "+x=1", "+y=2"]
    assert overrides("eval run +x=1 --limit 1 +y=2 --agent a") == expected
    assert overrides("eval run --agent a --limit 1 +x=1 +y=2") == expected


def test_an_override_is_never_taken_for_a_name() -> None:
    request = parse(PARSERS, cut(["env", "validate", "x=1", "+y=2"]))
    assert request.args.name is None
    assert request.raw_overrides == ["x=1", "+y=2"]


def test_a_name_is_found_wherever_it_stands() -> None:
    for line in ("env logs judge --port 1 -f", "env logs --port 1 judge -f", "env logs -f --port 1 judge"):
        args = parse(PARSERS, cut(line.split())).args
        assert (args.name, args.port, args.follow) == ("judge", "1", True)
