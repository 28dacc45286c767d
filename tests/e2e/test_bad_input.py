"""A person's mistakes: one clear sentence, the right exit code, and nothing lost."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import Ended, Workplace, question
from tests.mock_provider import Fault, MockProvider, Reply, Rule, Script

START = ("env", "start", "--resources-server", "mcqa", "--model-type", "openai_model")
RUN = ("eval", "run", "--resources-server", "mcqa", "--model-type", "openai_model")


def sentence(ended: Ended, code: int, *parts: str) -> None:
    """The command ended with `code` and said one thing, with all of `parts` in it."""
    assert ended.code == code, (ended.out, ended.err)
    assert all(part in ended.error for part in parts), ended.error


@pytest.mark.parametrize(
    ("argv", "code", "parts"),
    [
        (("env", "start", "--resources-server", "mcqua"), 2, ["mcqua", "Did you mean `--resources-server mcqa`?"]),
        (("env", "start", "--resources-server", "mcqa", "--model-type", "openia_model"), 2, ["openai_model"]),
        (("env", "start", "--config", "nope/x.yaml"), 1, ["nope/x.yaml", "Looked for"]),
        (("env", "start"), 1, ["no server", "gym env start --resources-server"]),
        (("eval", "run"), 2, ["--resources-server", "Example: gym eval run"]),
        (("eval", "profile"), 2, ["missing --inputs and --rollouts"]),
        ((*RUN, "--limit", "five"), 2, ["--limit", "'five'"]),
        ((*RUN, "--num-repeats", "0"), 2, ["--num-repeats"]),
        ((*RUN, "--split", "test"), 2, ["--split", "'test'"]),
        ((*RUN, "--input", "nope.jsonl"), 1, ["--input nope.jsonl does not exist"]),
        ((*RUN, "--split", "train"), 1, ["train"]),
        ((*RUN, "--output", "/dev/null/r.jsonl"), 1, ["/dev/null"]),
        ((*RUN, "+x=a=b"), 1, ["`+x=a=b`"]),
        ((*RUN, "+x=1", "+x=2"), 1, ["`+x=2`", "++x="]),
        ((*RUN, "+model_endpoint_readiness_timeout_seconds=soon"), 1, ["model_endpoint_readiness_timeout_seconds"]),
        (("env", "test", "--resources-server", "nope"), 1, ["resources_servers/nope"]),
        (("env", "schema", "--resources-server", "mcqua"), 1, ["Did you mean `mcqa`?"]),
        (("env", "logs"), 1, ["No run is alive"]),
        (("env", "stop"), 1, ["No run is alive"]),
        (("env", "stop", "--all"), 1, ["No run is alive"]),
        (("env", "stop", "--port", "70000"), 2, ["70000"]),
    ],
)
def test_a_mistake_on_the_line(place: Workplace, argv: tuple[str, ...], code: int, parts: list[str]) -> None:
    sentence(place.gym(*argv), code, *parts)


def test_verbose_shows_where_a_mistake_was_noticed(place: Workplace) -> None:
    ended = place.gym("-v", "env", "start", "--config", "nope.yaml")
    assert ended.code == 1
    assert "Traceback" in ended.err and "nope.yaml" in ended.err.splitlines()[-1]


def test_no_head_server_is_three_lines_at_most(place: Workplace) -> None:
    place.write_rows("rows.jsonl", [question(0)])
    ended = place.gym("eval", "run", "--no-serve", "--input", "rows.jsonl", "--output", "r.jsonl")
    sentence(ended, 1, f"127.0.0.1:{place.head_port}", "gym env start", "+head_server.port")
    assert len(ended.error.splitlines()) <= 3
    status = place.gym("env", "status")
    assert status.code == 0 and "gym env start" in status.err and len(status.err.splitlines()) <= 3
    assert json.loads(place.gym("env", "status", "--json").out) == []


def test_malformed_yaml_names_file_and_line(place: Workplace) -> None:
    (place.folder / "bad.yaml").write_text("a: 1\nb: [1,\nc: }\n")
    sentence(place.gym("env", "resolve", "--config", "bad.yaml"), 1, "bad.yaml", "3")
    (place.folder / "env.yaml").write_text("a: 'open\n")
    sentence(place.gym("env", "resolve"), 1, "env.yaml")
    assert place.gym("--version").code == 0


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b'{"a": 1}\n{"b": \n', ["rows.jsonl", "2"]),
        (b"[1]\n", ["rows.jsonl", "1", "object"]),
        (b"", ["rows.jsonl"]),
        (b"\n\n", ["rows.jsonl"]),
        (b'{"a": "\xff"}\n', ["rows.jsonl", "1"]),
    ],
)
def test_rows_that_cannot_be_read_are_told_before_servers_start(
    place: Workplace, content: bytes, parts: list[str]
) -> None:
    (place.folder / "rows.jsonl").write_bytes(content)
    ended = place.gym(*RUN, "--input", "rows.jsonl", "--output", "r.jsonl")
    sentence(ended, 1, *parts)
    assert "[1]" not in ended.out
    assert not (place.folder / "r.jsonl").exists()


def test_blank_lines_byte_order_marks_and_carriage_returns_are_fine(place: Workplace) -> None:
    lines = "\r\n\r\n".join(json.dumps(question(number)) for number in range(2))
    (place.folder / "rows.jsonl").write_bytes(b"\xef\xbb\xbf" + lines.encode() + b"\r\n\r\n")
    ended = place.gym(*RUN, "--input", "rows.jsonl", "--output", "r.jsonl")
    assert ended.code == 0, ended.err
    assert len(place.read_rows("r.jsonl")) == 2


def test_a_mistyped_input_loses_no_results(place: Workplace) -> None:
    place.write_rows("r.jsonl", [{"reward": 1.0}])
    sentence(place.gym(*RUN, "--input", "nope.jsonl", "--output", "r.jsonl", "--overwrite"), 1, "nope.jsonl")
    assert place.read_rows("r.jsonl") == [{"reward": 1.0}]


def test_an_unknown_agent_is_named_with_the_known_ones(place: Workplace) -> None:
    place.write_rows("rows.jsonl", [question(0)])
    ended = place.gym(*RUN, "--input", "rows.jsonl", "--output", "r.jsonl", "--agent", "mcqa_simple_agnt")
    sentence(ended, 1, "mcqa_simple_agnt", "mcqa_simple_agent")


def test_missing_model_settings_are_asked_for_in_one_sentence(place: Workplace) -> None:
    place.write_env()
    sentence(place.gym(*START), 1, "policy_base_url", "policy_api_key", "policy_model_name")


def test_a_url_without_a_model_type_asks_for_the_type(place: Workplace) -> None:
    sentence(place.gym("env", "start", "--resources-server", "mcqa"), 1, "--model-type")


def test_an_unreachable_model_ends_the_start_with_its_address(place: Workplace) -> None:
    place.write_env(policy_base_url="http://127.0.0.1:9/v1", policy_api_key="k", policy_model_name="m")
    ended = place.gym(*START, "+model_endpoint_readiness_timeout_seconds=0.2")
    sentence(ended, 1, "http://127.0.0.1:9/v1")
    assert "All 3 / 3 servers ready!" in ended.out


@pytest.fixture
def flaky(tmp_path: Path) -> Iterator[Workplace]:
    """A workplace whose model refuses one of the questions."""
    refuse = Rule("Question 1", (Reply(fault=Fault(status=400)),))
    with MockProvider(Script(rules=(refuse,), default=(Reply(text="\\boxed{A}"),))) as mock:
        workplace = Workplace(tmp_path)
        workplace.write_env(policy_base_url=mock.base_url, policy_api_key="k", policy_model_name="m")
        workplace.write_rows("rows.jsonl", [question(number) for number in range(3)])
        yield workplace


def test_a_rollout_that_fails_is_data(flaky: Workplace) -> None:
    ended = flaky.gym(*RUN, "--input", "rows.jsonl", "--output", "r.jsonl")
    assert ended.code == 0, ended.err
    assert len(flaky.read_rows("r.jsonl")) == 2
    (failure,) = flaky.read_rows("r_failures.jsonl")
    assert failure["_ng_failure_class"]


def test_a_run_in_which_nothing_was_measured_fails(flaky: Workplace) -> None:
    flaky.write_rows("rows.jsonl", [question(1)])
    sentence(flaky.gym(*RUN, "--input", "rows.jsonl", "--output", "r.jsonl"), 1, "r_failures.jsonl")


def test_a_busy_port_is_told_with_its_owner(place: Workplace) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", place.head_port))
        taken.listen()
        sentence(place.gym(*START), 1, str(place.head_port), "+head_server.port")


def test_a_server_that_cannot_start_ends_the_others_and_shows_its_last_lines(place: Workplace) -> None:
    ended = place.gym(*START, "++policy_model.responses_api_models.openai_model.openai_base_url=[1,{a: b}]")
    assert ended.code == 1, ended.out
    assert "policy_model" in ended.error
    assert list(place.runs.glob("*/*")) == []


def test_a_venv_whose_interpreter_is_gone_is_built_anew(place: Workplace) -> None:
    venvs = place.folder / "venvs"
    command = (*START, "+dry_run=true", f"+uv_venv_dir={venvs}")
    assert place.gym(*command).code == 0
    python = venvs / "responses_api_agents/simple_agent/.venv/bin/python"
    python.unlink()
    python.symlink_to("/no/such/python")
    ended = place.gym(*command)
    assert ended.code == 0, ended.err
    assert python.resolve().exists()


def test_a_reader_that_goes_away_is_no_error(place: Workplace) -> None:
    import subprocess

    from tests.e2e.harness import GYM

    command = f"'{GYM[0]}' -c '{GYM[2]}' env resolve --resources-server mcqa --model-type openai_model | head -n 1"
    done = subprocess.run(
        ["bash", "-c", command], cwd=place.folder, env=place.environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""
