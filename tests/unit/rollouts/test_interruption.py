"""Ending a collection by a signal."""

from __future__ import annotations

import asyncio
import gc
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nemo_gym import rollout_collection
from nemo_gym.rollout_collection import RolloutCollectionConfig
from nemo_gym.rollouts import budget, resume, scoring
from nemo_gym.rollouts.errors import StoppedError, TerminatedError
from nemo_gym.rollouts.interruption import resume_command, run_until_signal
from nemo_gym.rollouts.long_stages import is_in_long_stage, long_stage
from nemo_gym.rollouts.materialise import Planner
from nemo_gym.rollouts.outputs import ResultSet
from tests.unit.rollouts.fakes import FakeClient, collection_config, read_jsonl, right, served, task

SCRIPT = """
import asyncio, signal, sys, threading
from pathlib import Path
from nemo_gym import rollout_collection
from nemo_gym.errors import GymError
from nemo_gym.rollout_collection import run_collection
from tests.unit.rollouts.fakes import FakeClient, collection_config, right, served, task

folder = Path(sys.argv.pop(1))

async def answer(row):
    if row["number"] == 2:
        print("waiting", flush=True)
        try:
            await asyncio.Event().wait()
        finally:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.raise_signal(number)
    return right(row)

client = FakeClient(served(), answer)
rollout_collection.setup_server_client_utils = lambda head=None: client
rows = [task(f"q{n}", number=n) for n in range(3)]
config = collection_config(folder, rows, agent_name="math_agent", num_samples_in_parallel=1)
try:
    run_collection(config)
except GymError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 75), (signal.SIGHUP, 75)])
def test_a_signal_closes_the_books_and_says_how_to_go_on(tmp_path: Path, number: signal.Signals, code: int) -> None:
    """B111. Also when it is said twice, as `timeout` does."""
    arguments = ["eval", "run", "--no-serve", "--overwrite", "--agent", "math_agent"]
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(number)
    told, said = process.communicate(timeout=60)
    assert process.returncode == code, said
    output = tmp_path / "out.jsonl"
    assert said.splitlines()[-2:] == [
        f"Stopped: 2 of 3 rollouts are saved in {output}. Go on with:",
        f"gym eval run --no-serve --agent math_agent --output {output} --resume",
    ]
    assert told.splitlines() == ["3 asked: 2 measured, 0 failed, 1 unknown"]
    assert len(read_jsonl(output)) == 2
    assert read_jsonl(tmp_path / "out.jsonl.journal")[-1]["state"] == "stopped"
    assert not list(tmp_path.glob(".*"))


def test_a_signal_before_anything_began_leaves_no_complaint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    async def collection() -> None:
        raise AssertionError("began")

    monkeypatch.setattr("nemo_gym.rollouts.interruption.relax_collection", stop)
    with pytest.raises(KeyboardInterrupt):
        run_until_signal(collection(), ResultSet(tmp_path / "x.jsonl"), [])
    gc.collect()
    assert not recwarn.list


def _as_nohup() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_a_hup_that_nohup_had_ignored_stays_ignored(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path), "eval", "run"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
        preexec_fn=_as_nohup,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    status = Path(f"/proc/{process.pid}/status").read_text()
    (ignored,) = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigIgn:")]
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert ignored >> (signal.SIGHUP - 1) & 1
    assert (process.returncode, "2 of 3 rollouts are saved" in said) == (130, True), said


def test_a_spent_budget_ends_as_walltime_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """B111: what was measured is scored, the rest can be gone on with."""
    looks = iter([False, False, True])
    monkeypatch.setattr(budget.Budget, "is_spent", lambda self: next(looks))
    client = FakeClient(served(), right)
    monkeypatch.setattr(rollout_collection, "setup_server_client_utils", lambda head=None: client)
    rows = [task(f"q{number}") for number in range(3)]
    config = collection_config(
        tmp_path, rows, agent_name="math_agent", num_samples_in_parallel=1, dispatch_budget_s=60.0
    )
    with pytest.raises(TerminatedError, match=r"2 of 3 rollouts are saved.*\ngym eval run .*--resume") as raised:
        rollout_collection.run_collection(config, argv=["eval", "run"])
    assert raised.value.exit_code == 75
    assert capsys.readouterr().out.splitlines()[-1] == "3 asked: 2 measured, 0 failed, 0 unknown, 1 not started"
    assert (tmp_path / "out_aggregate_metrics.json").exists()
    monkeypatch.undo()
    monkeypatch.setattr(rollout_collection, "setup_server_client_utils", lambda head=None: client)
    rollout_collection.run_collection(collection_config(tmp_path, [], resume_from_cache=True), argv=["eval", "run"])
    assert len(read_jsonl(tmp_path / "out.jsonl")) == 3


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        ("eval run -o x.jsonl", "gym eval run -o x.jsonl --resume"),
        ("eval run -o x.jsonl --resume-anyway", "gym eval run -o x.jsonl --resume-anyway"),
        ("eval run --output=x.jsonl --resume", "gym eval run --output=x.jsonl --resume"),
        (
            "eval run +output_jsonl_fpath=x.jsonl +resume_from_cache=true",
            "gym eval run +output_jsonl_fpath=x.jsonl +resume_from_cache=true",
        ),
        ("eval run -m 'a b' +overwrite=true", "gym eval run -m 'a b' --output out.jsonl --resume"),
        (
            "eval run -o x --model-api-key sk-1 +policy_api_key=sk-2",
            "gym eval run -o x --model-api-key env:POLICY_API_KEY '+policy_api_key=${oc.env:POLICY_API_KEY}' --resume",
        ),
        (
            "eval run -o x ++m.openai_api_key=sk-2",
            "gym eval run -o x '++m.openai_api_key=${oc.env:OPENAI_API_KEY}' --resume",
        ),
        ("eval run -o x '+api_key=${oc.env:K}'", "gym eval run -o x '+api_key=${oc.env:K}' --resume"),
        ("eval run -o x --model-api-key=sk-1", "gym eval run -o x --model-api-key=env:POLICY_API_KEY --resume"),
        ("eval run -o x --model-api-key env:K", "gym eval run -o x --model-api-key env:K --resume"),
    ],
)
def test_the_command_that_goes_on(argv: str, command: str) -> None:
    import shlex

    assert resume_command(shlex.split(argv), Path("out.jsonl")) == command


# --- at every stage ---


def stopped(config: RolloutCollectionConfig, argv: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is said to somebody who stops a collection against servers that answer at once."""
    client = FakeClient(served(), right)
    monkeypatch.setattr(rollout_collection, "setup_server_client_utils", lambda head=None: client)
    with pytest.raises(StoppedError) as raised:
        rollout_collection.run_collection(config, argv=argv.split())
    assert raised.value.exit_code == 130
    return str(raised.value).splitlines()


@pytest.fixture
def own_handlers() -> Iterator[None]:
    """Handlers as they were before, whatever a stopped collection has left."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def interrupt_at(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, number: int) -> list[int]:
    """Have the `number`-th call of a function interrupt the process first; counts the calls."""
    function = getattr(owner, name)
    calls: list[int] = []

    def interrupting(*args: Any, **kwargs: Any) -> Any:
        calls.append(len(calls) + 1)
        if len(calls) == number:
            signal.raise_signal(signal.SIGINT)
        return function(*args, **kwargs)

    monkeypatch.setattr(owner, name, interrupting)
    return calls


ROWS = [task(f"q{number}", number=number) for number in range(5)]


def test_a_plan_that_takes_long_need_not_be_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_handlers: None
) -> None:
    planned = interrupt_at(monkeypatch, Planner, "plan", 2)
    config = collection_config(tmp_path, ROWS, agent_name="math_agent")
    output = tmp_path / "out.jsonl"
    assert stopped(config, "eval run --agent math_agent", monkeypatch) == [
        f"Stopped: no rollout is saved in {output}. Go on with:",
        f"gym eval run --agent math_agent --output {output} --resume",
    ]
    assert planned == [1, 2]
    assert [path.name for path in tmp_path.iterdir()] == ["input.jsonl"]


def test_earlier_results_stay_and_are_not_offered_to_go_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_handlers: None
) -> None:
    """What the stopped command wanted is another run than the one whose results are there."""
    client = FakeClient(served(), right)
    monkeypatch.setattr(rollout_collection, "setup_server_client_utils", lambda head=None: client)
    rollout_collection.run_collection(collection_config(tmp_path, ROWS[:2], agent_name="math_agent"), argv=[])
    before = {path.name: path.read_bytes() for path in tmp_path.glob("out*")}
    interrupt_at(monkeypatch, Planner, "plan", 2)
    config = collection_config(tmp_path, ROWS, agent_name="math_agent")
    command = f"eval run --agent math_agent -o {tmp_path / 'out.jsonl'} --overwrite"
    assert stopped(config, command, monkeypatch) == [
        f"Stopped before any rollout was run: {tmp_path / 'out.jsonl'} is as it was. Begin again with:",
        f"gym {command}",
    ]
    assert {path.name: path.read_bytes() for path in tmp_path.glob("out*")} == before


def test_reading_back_what_is_there_can_be_stopped_and_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_handlers: None
) -> None:
    client = FakeClient(served(), right)
    monkeypatch.setattr(rollout_collection, "setup_server_client_utils", lambda head=None: client)
    rollout_collection.run_collection(collection_config(tmp_path, ROWS, agent_name="math_agent"), argv=[])
    output = tmp_path / "out.jsonl"
    output.write_bytes(b"".join(output.read_bytes().splitlines(keepends=True)[:3]))
    read = interrupt_at(monkeypatch, resume, "key_of", 2)
    config = collection_config(tmp_path, [], resume_from_cache=True)
    assert stopped(config, "eval run --resume", monkeypatch) == [
        f"Stopped: 3 of 5 rollouts are saved in {output}. Go on with:",
        f"gym eval run --resume --output {output}",
    ]
    assert read == [1, 2]


@pytest.mark.parametrize("call", ["index", "ask"])
def test_metrics_that_take_long_need_not_be_waited_for(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    own_handlers: None,
    capsys: pytest.CaptureFixture[str],
    call: str,
) -> None:
    """All is measured: going on computes the metrics and runs nothing."""
    calls = (
        interrupt_at(monkeypatch, scoring, "key_of", 2)
        if call == "index"
        else interrupt_at(monkeypatch, FakeClient, "_aggregate", 1)
    )
    if call == "ask":
        post = FakeClient.post

        async def slow(client: FakeClient, server_name: str, url_path: str, **kwargs: Any) -> Any:
            reply = await post(client, server_name, url_path, **kwargs)
            if url_path == "/aggregate_metrics":
                await asyncio.sleep(60)
            return reply

        monkeypatch.setattr(FakeClient, "post", slow)
    config = collection_config(tmp_path, ROWS, agent_name="math_agent")
    said = stopped(config, "eval run", monkeypatch)
    output = tmp_path / "out.jsonl"
    assert said[0] == f"Stopped before the metrics were computed: 5 of 5 rollouts are saved in {output}. Go on with:"
    assert said[1].endswith("--resume") and calls == [1, 2][: len(calls)]
    assert capsys.readouterr().out.splitlines()[-1] == "5 asked: 5 measured, 0 failed, 0 unknown"
    monkeypatch.undo()
    client = FakeClient(served(), right)
    monkeypatch.setattr(rollout_collection, "setup_server_client_utils", lambda head=None: client)
    rollout_collection.run_collection(collection_config(tmp_path, [], resume_from_cache=True), argv=[])
    assert client.runs == [] and len(client.aggregated[0][1]) == 5


def test_a_stage_is_long_as_long_as_it_lasts() -> None:
    with long_stage():
        with long_stage():
            pass
        assert is_in_long_stage()
    assert not is_in_long_stage()
