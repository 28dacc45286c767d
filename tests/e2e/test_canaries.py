"""B97, B98, B99: secrets planted in every door of the real command line, then looked for wherever it leaves something.

What must hold a secret, and is left out: env.yaml and the variables of the person, the arguments of the very command a
key was typed into, and the run's 0600 `config.json`.
"""

import json
import os
import signal
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from tests.e2e.harness import Ended, Workplace, question
from tests.mock_provider import Fault, MockProvider, Reply, Rule, Script

CANARIES = {
    "typed on the line": "cli-canary-9f27c1",
    "in env.yaml": "yaml-canary-2b81d4",
    "in a variable": "env-canary-5c03ab",
    "password of a URL": "url-canary-77aa10",
    "in a header": "hdr-canary-e41f6",
    "in a list": "list-canary-b0d83",
    "behind a flag in a list": "flag-canary-60c2e",
    "nested": "deep-canary-88f31",
}
CONFIG = {
    "policy_model_name": "mock",
    "hf_token": CANARIES["in env.yaml"],
    "judge_api_key": "${oc.env:CANARY_OF_THE_PERSON}",
    "judge_base_url": f"http://judge:{CANARIES['password of a URL']}@127.0.0.1:9/v1",
    "extra_headers": {"X-Corp-Auth": CANARIES["in a header"]},
    "api_keys": [CANARIES["in a list"]],
    "engine_args": ["--api-key", CANARIES["behind a flag in a list"], "--port", "1"],
    "a": {"b": [{"client_secret": CANARIES["nested"]}]},
}
VARIABLES = {"CANARY_OF_THE_PERSON": CANARIES["in a variable"]}
KEY = CANARIES["typed on the line"]
SERVERS = ("--resources-server", "mcqa", "--model-type", "openai_model", f"++policy_api_key={KEY}")
ECHO = "you sent Authorization: Bearer " + " and ".join(CANARIES.values())


def tells_everything(status: int) -> tuple[Reply, ...]:
    """A provider that hands back every secret it could know."""
    return (Reply(fault=Fault(status=status, message=ECHO)),)


SCRIPT = Script(
    rules=(
        Rule("Question 1:", tells_everything(401)),
        Rule("Question 2:", tells_everything(500)),
        Rule("Question 3:", tells_everything(400)),
        Rule("Question 4:", tells_everything(404)),
        Rule("Question 5:", (Reply(raw={"nonsense": ECHO}),)),
    ),
    default=(Reply(text="\\boxed{A}"),),
)


@dataclass
class Watch:
    """Everything that was said, by where it was said."""

    place: Workplace
    said: dict[str, str] = field(default_factory=dict)

    def gym(self, *argv: str) -> Ended:
        ended = self.place.gym(*argv, **VARIABLES)
        self.said[f"gym {' '.join(argv[:2])} ({len(self.said)})"] = ended.out + ended.err
        return ended

    def look_at_files(self) -> None:
        for path in sorted(self.place.folder.rglob("*")):
            if path.is_file() and path.name != "env.yaml" and not path.name.endswith("config.json"):
                self.said[f"file {path.relative_to(self.place.folder)}"] = path.read_text(errors="replace")

    def look_at_processes(self, typed_into: int | None) -> int:
        """Argument lists, and variables but for those of the person; the number of processes that were seen."""
        own = list(self._own_processes())
        for process in own:
            if process.pid != typed_into:
                self.said[f"arguments of {process.name()} {process.pid}"] = "\0".join(process.cmdline())
            variables = {name: value for name, value in process.environ().items() if name not in VARIABLES}
            self.said[f"variables of {process.name()} {process.pid}"] = repr(variables)
        return len(own)

    def _own_processes(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            try:
                if process.environ().get("XDG_RUNTIME_DIR") == str(self.place.runs) and process.pid != os.getpid():
                    yield process
            except psutil.Error:
                continue

    def found(self) -> list[str]:
        return [
            f"{name}: {canary}, as in …{text[max(0, text.index(canary) - 100) : text.index(canary) + 40]!r}"
            for name, text in self.said.items()
            for canary in CANARIES.values()
            if canary in text
        ]


@pytest.fixture
def mock() -> Iterator[MockProvider]:
    with MockProvider(SCRIPT) as provider:
        yield provider


@pytest.fixture
def watch(tmp_path: Path, mock: MockProvider) -> Watch:
    place = Workplace(tmp_path)
    place.write_env(policy_base_url=mock.base_url, **CONFIG)
    rows = [{**question(number), "verifier_metadata": {"api_key": f"row-{number}"}} for number in range(7)]
    place.write_rows("rows.jsonl", rows)
    return Watch(place)


def keys_received(mock: MockProvider) -> set[str]:
    return {request.headers.get("authorization", "") for request in mock.requests}


def modes(folder: Path) -> Mapping[str, int]:
    return {str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}


def test_a_served_run_and_commands_about_it_show_no_secret(watch: Watch, mock: MockProvider) -> None:
    place = watch.place
    assert watch.gym("env", "start", *SERVERS, "--detach", "--verbose").code == 0
    try:
        run = f"runs/nemo-gym-{os.getuid()}/{place.head_port}"
        found = modes(place.folder / run)
        assert {"run.json", "launcher.log", "config.json", "token", "logs", "logs/mcqa.log"} <= found.keys()
        assert {name: oct(mode) for name, mode in found.items() if mode & 0o077} == {}
        for argv in (
            ("env", "status"),
            ("env", "status", "--json"),
            ("env", "resolve", *SERVERS),
            ("ps",),
            ("ps", "--json"),
        ):
            assert watch.gym(*argv).code == 0, watch.said
        collected = watch.gym("-v", "eval", "run", "--no-serve", "--input", "rows.jsonl", "--output", "served.jsonl")
        assert collected.code == 0, collected.err
        for name in ("mcqa", "policy_model", "mcqa_simple_agent"):
            assert watch.gym("env", "logs", name).code == 0
        assert watch.look_at_processes(typed_into=None) >= 5
        watch.look_at_files()
    finally:
        watch.gym("env", "stop")
    assert f"Bearer {KEY}" in keys_received(mock)  # it was in use all the time
    assert any("401" in text for text in watch.said.values())
    assert watch.found() == []


def test_a_run_whose_model_fails_in_every_way_shows_no_secret(watch: Watch, mock: MockProvider) -> None:
    capture = watch.place.folder / "captured"
    observed = ("+observability_enabled=true", f"+model_call_capture_dir={capture}")
    run = ("--input", "rows.jsonl", "--output", "r.jsonl", "--verbose", *SERVERS, *observed)
    with watch.place.started("eval", "run", *run, **VARIABLES) as running:
        running.wait_for("servers ready!")
        assert watch.look_at_processes(typed_into=running.process.pid) >= 4
        assert running.ended() == 0, running.text
        watch.said["eval run"] = running.text
    records, failures = watch.place.read_rows("r.jsonl"), watch.place.read_rows("r_failures.jsonl")
    assert len(records) == 2 and len(failures) == 5
    inputs = watch.place.read_rows("r_materialized_inputs.jsonl")
    assert [row["verifier_metadata"]["api_key"] for row in inputs] == [f"row-{n}" for n in range(7)]  # rows are data
    assert any(capture.iterdir())
    watch.gym("eval", "profile", "--inputs", "r_materialized_inputs.jsonl", "--rollouts", "r.jsonl")
    watch.look_at_files()
    assert f"Bearer {KEY}" in keys_received(mock)
    assert watch.found() == []


@pytest.mark.parametrize(
    "mistake",
    [
        f"++policy_model.responses_api_models.openai_model.openai_api_key=[{KEY},{{a: {KEY}}}]",
        f"++policy_base_url=http://me:{CANARIES['password of a URL']}@127.0.0.1:9/v1",
        f"+policy_api_key={KEY}",
        f"++judge_api_key={KEY} {KEY}=[",
        f"+api_key={KEY}=",
    ],
)
def test_mistakes_are_told_without_the_secret(watch: Watch, mistake: str) -> None:
    quick = "+model_endpoint_readiness_timeout_seconds=0.2"
    for verbose in ((), ("-v",)):
        ended = watch.gym(*verbose, "env", "start", *SERVERS[:-1], "++policy_api_key=other", mistake, quick)
        assert ended.code != 0
    watch.look_at_files()
    assert watch.found() == []


def test_a_server_that_is_killed_shows_no_secret(watch: Watch) -> None:
    with watch.place.started("env", "start", *SERVERS, "+server_restarts=0", **VARIABLES) as running:
        running.wait_for("servers ready!")
        watch.gym("eval", "run", "--no-serve", "--input", "rows.jsonl", "--limit", "3", "--output", "killed.jsonl")
        rows = json.loads(watch.gym("env", "status", "--json").out)
        os.kill(next(row["pid"] for row in rows if row["process_name"] == "policy_model"), signal.SIGKILL)
        assert running.ended() == 1
        watch.said["env start"] = running.text
    assert "policy_model" in running.text
    watch.look_at_files()
    assert watch.found() == []
