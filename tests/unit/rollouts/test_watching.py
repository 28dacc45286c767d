"""Servers that end while a collection runs."""

from __future__ import annotations

import asyncio
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from nemo_gym import rollout_collection
from nemo_gym.rollout_collection import EvalRunConfig, collect_from_running_servers, run_collection
from nemo_gym.rollouts import watching
from nemo_gym.rollouts.errors import NothingMeasuredError, ServersLostError
from nemo_gym.rollouts.watching import HeadWatch
from tests.unit.rollouts.fakes import (
    FakeClient,
    FakeReply,
    collection_config,
    read_jsonl,
    right,
    served,
    task,
    write_jsonl,
)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch is called all the time."""
    monkeypatch.setattr(watching, "_SECONDS_BETWEEN_LOOKS", 0.01)


@pytest.fixture
def no_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch is never called while a collection goes on."""
    monkeypatch.setattr(watching, "_SECONDS_BETWEEN_LOOKS", 3600.0)


def collect(folder: Path, monkeypatch: pytest.MonkeyPatch, answer: Any, watch: Any) -> None:
    monkeypatch.setattr(rollout_collection, "setup_server_client_utils", lambda head=None: FakeClient(served(), answer))
    rows = [task(f"q{n}", number=n) for n in range(3)]
    config = collection_config(folder, rows, agent_name="math_agent", num_samples_in_parallel=1)
    run_collection(config, argv=["eval", "run", "--overwrite"], watch=watch)


def lost() -> None:
    raise RuntimeError("Server math (pid 7) was killed by SIGKILL.")


def test_a_loss_ends_the_run_in_order_and_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks: None
) -> None:
    stuck = threading.Event()

    async def answer(row: dict[str, Any]) -> Any:
        if row["number"] == 2:
            stuck.set()
            await asyncio.Event().wait()
        return right(row)

    output = tmp_path / "out.jsonl"
    with pytest.raises(ServersLostError) as raised:
        collect(tmp_path, monkeypatch, answer, lambda: lost() if stuck.is_set() else None)
    assert str(raised.value).splitlines() == [
        "Server math (pid 7) was killed by SIGKILL.",
        f"Stopped: 2 of 3 rollouts are saved in {output}. Go on with:",
        f"gym eval run --output {output} --resume",
    ]
    assert raised.value.exit_code == 1
    assert len(read_jsonl(output)) == 2 and read_jsonl(tmp_path / "out_failures.jsonl") == []
    assert read_jsonl(tmp_path / "out.jsonl.journal")[-1]["state"] == "stopped"
    assert not list(tmp_path.glob(".*"))


def failing(count: int) -> Any:
    """The last rows fail."""
    return lambda row: right(row) if row["number"] < 3 - count else FakeReply("nobody there", status=500)


@pytest.mark.parametrize("failed", [1, 3])
def test_a_run_with_failures_says_when_a_server_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_looks: None, failed: int
) -> None:
    with pytest.raises(
        ServersLostError, match=rf"\(pid 7\) was killed by SIGKILL\.\nStopped: {3 - failed} of 3 rollouts"
    ):
        collect(tmp_path, monkeypatch, failing(failed), lost)


def test_failures_by_themselves_are_no_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_looks: None) -> None:
    collect(tmp_path, monkeypatch, failing(1), lambda: None)
    with pytest.raises(NothingMeasuredError):
        collect(tmp_path, monkeypatch, failing(3), lambda: None)


def test_a_run_that_is_done_needs_its_servers_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_looks: None
) -> None:
    collect(tmp_path, monkeypatch, right, lost)
    assert len(read_jsonl(tmp_path / "out.jsonl")) == 3


def test_a_collection_on_running_servers_ends_with_their_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks: None
) -> None:
    async def never(row: dict[str, Any]) -> Any:
        await asyncio.Event().wait()

    with socket.create_server(("127.0.0.1", 0)) as head:
        port = head.getsockname()[1]
    config = served(head_server={"host": "127.0.0.1", "port": port})
    monkeypatch.setattr(rollout_collection, "get_global_config_dict", lambda: config)
    monkeypatch.setattr(rollout_collection, "setup_server_client_utils", lambda head=None: FakeClient(config, never))
    rows = write_jsonl(tmp_path / "rows.jsonl", [task("q")])
    values = {"input_jsonl_fpath": str(rows), "output_jsonl_fpath": str(tmp_path / "out.jsonl")}
    with pytest.raises(ServersLostError, match=r"The servers have ended.*\nStopped: 0 of 1 rollouts are saved"):
        collect_from_running_servers(EvalRunConfig.model_validate(values | {"agent_name": "math_agent"}))


def test_servers_are_gone_when_their_head_refuses_again_and_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as head:
        port = head.getsockname()[1]
        watch = HeadWatch("127.0.0.1", port)
        watch()
    watch()
    watch()
    with socket.create_server(("127.0.0.1", port)):
        watch()
    watch()
    watch()
    with pytest.raises(ServersLostError, match=f"nothing listens at their head server's 127.0.0.1:{port}"):
        watch()


@pytest.mark.parametrize("error", [TimeoutError("timed out"), OSError("No route to host")])
def test_a_head_that_is_slow_or_far_is_not_gone(monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    def connect(*_: object, **__: object) -> socket.socket:
        raise error

    monkeypatch.setattr(socket, "create_connection", connect)
    watch = HeadWatch("127.0.0.1", 1)
    for _ in range(5):
        watch()
