"""What has to be done before a collection that was cut off can go on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nemo_gym.rollouts import watching
from nemo_gym.rollouts.admission import Admission
from nemo_gym.rollouts.errors import ServersLostError
from nemo_gym.rollouts.failures import failure_class_of
from nemo_gym.rollouts.interruption import run_until_signal
from nemo_gym.rollouts.outputs import ResultSet
from tests.unit.rollouts.fakes import FakeClient, served
from tests.unit.rollouts.test_bounds import behind, dispatcher, numbered


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_SECONDS_BETWEEN_LOOKS", 0.001)


def told(tmp_path: Path, *argv: str) -> list[str]:
    """What is said when servers are lost while nothing has been collected."""

    def lost() -> None:
        raise RuntimeError("They are gone.")

    with pytest.raises(ServersLostError) as raised:
        run_until_signal(asyncio.sleep(60), ResultSet(tmp_path / "r.jsonl"), ["eval", "run", *argv], lost)
    return str(raised.value).splitlines()


def test_servers_of_somebody_else_are_started_first(tmp_path: Path) -> None:
    said, stopped, command = told(tmp_path, "--no-serve", "-o", "r.jsonl")
    assert said == "They are gone."
    assert stopped.endswith("Start the servers again, then go on with:")
    assert command == "gym eval run --no-serve -o r.jsonl --resume"


@pytest.mark.parametrize(
    ("typed", "variable"),
    [
        (["--model-api-key", "sk-1"], "POLICY_API_KEY"),
        (["++policy_api_key=sk-1"], "POLICY_API_KEY"),
        (["+judge.key=sk-1", "--model-api-key=sk-2"], "KEY, POLICY_API_KEY"),
    ],
)
def test_a_key_that_was_typed_has_to_be_set(
    tmp_path: Path, typed: list[str], variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("POLICY_API_KEY", "KEY"):
        monkeypatch.delenv(name, raising=False)
    _, stopped, command = told(tmp_path, "-o", "r.jsonl", *typed)
    assert stopped.endswith(f"Set {variable} to the key, which is not repeated here, then go on with:")
    assert "sk-" not in command
    for name in variable.split(", "):
        monkeypatch.setenv(name, "sk-1")
    assert told(tmp_path, "-o", "r.jsonl", *typed)[1].endswith("Go on with:")


def test_a_key_that_was_named_is_nothing_to_speak_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_KEY", raising=False)
    assert told(tmp_path, "-o", "r.jsonl", "--model-api-key", "env:MY_KEY")[1].endswith("Go on with:")


# --- servers that are gone ---


async def test_a_rollout_that_reached_nobody_is_unknown_when_the_servers_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A launcher's death is no rollout's failure: no attempt is spent on it, and the collection is about to end."""
    is_gone, looks = True, 0

    def watch() -> None:
        nonlocal looks
        looks += 1
        if is_gone:
            raise RuntimeError("They are gone.")

    watching.watch_collection(watch)
    client = FakeClient(served(), lambda row: behind("transport_unreachable"))
    running = asyncio.create_task(dispatcher(client, Admission(4)).run(numbered(1)[0]))
    async with asyncio.timeout(20):
        while looks < 5 and not running.done():
            await asyncio.sleep(0.001)
    assert not running.done()
    is_gone = False
    completed = await running
    assert failure_class_of(completed.result) == "transport_unreachable", "they were there after all"


async def test_other_failures_are_recorded_whatever_becomes_of_the_servers() -> None:
    def watch() -> None:
        raise RuntimeError("They are gone.")

    watching.watch_collection(watch)
    client = FakeClient(served(), lambda row: behind("verifier_error"))
    async with asyncio.timeout(20):
        completed = await dispatcher(client, Admission(4)).run(numbered(1)[0])
    assert failure_class_of(completed.result) == "verifier_error"
