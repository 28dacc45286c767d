from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from nemo_gym import telemetry
from nemo_gym.telemetry.memory import MemoryProfiler, WatchedServer
from nemo_gym.telemetry.metrics import INSTRUMENTS, record
from nemo_gym.telemetry.orchestrator import RunTelemetry
from tests.unit.telemetry.conftest import Exported

Start = Callable[..., None]


async def verify(number: int) -> int:
    if number < 0:
        raise ValueError
    return number


async def test_calls_are_timed_whether_or_not_their_spans_are_wanted(start: Start, exported: Exported) -> None:
    start(SPAN_GROUPS="job")
    measured = telemetry.trace_fn("verify", "gym.verify")(verify)
    for number in (1, 2, 3):
        assert await measured(number) == number
    with pytest.raises(ValueError):
        await measured(-1)
    (durations,) = exported.points("gym.verify.duration_ms")
    assert durations.count == 4 and durations.attributes == {"nemo.gym.server.name": "toy"}
    (rate,) = exported.points("gym.verify.success_rate")
    assert rate.value == 0.75 and exported.names() == []


def test_sync_functions_are_timed_too_and_others_left_alone(start: Start, exported: Exported) -> None:
    start()

    def rollout() -> int:
        return 1

    assert telemetry.trace_fn("rollout", "gym.rollout")(rollout)() == 1
    assert telemetry.trace_fn("agent", "gym.agent.responses")(rollout) is rollout
    assert exported.points("gym.rollout.duration_ms")[0].count == 1
    assert exported.points("gym.verify.success_rate") == []


def test_every_instrument_takes_values(start: Start, exported: Exported) -> None:
    start()
    for name in INSTRUMENTS:
        record(name, 2, {"nemo.gym.sandbox.provider": "docker"})
        record(name, 3, {"nemo.gym.sandbox.provider": "docker"})
    kinds = {name: exported.points(name)[0] for name in INSTRUMENTS}
    assert kinds["gym.sandbox.create_retry_total"].value == 5
    assert kinds["gym.sandbox.active"].value == 5
    assert kinds["gym.servers.active"].value == 3
    assert kinds["gym.sandbox.exec_duration_ms"].sum == 5


def test_off_nothing_is_kept(exported: Exported) -> None:
    record("gym.servers.active", 3)
    record("no such metric", 3)
    assert exported.points("gym.servers.active") == []


def test_memory_of_servers_and_machine_is_sampled(start: Start, exported: Exported) -> None:
    start()
    servers = {"agent": WatchedServer("responses_api_agents", os.getpid()), "gone": WatchedServer("x", 2**22 + 1)}
    profiler = MemoryProfiler(lambda: servers)
    profiler.sample()
    usage = {point.attributes["memory.type"]: point for point in exported.points("gym.server.memory.usage")}
    assert usage["rss"].value > 1 << 20
    assert {key: usage["rss"].attributes[key] for key in ("nemo.gym.server.name", "process.pid")} == {
        "nemo.gym.server.name": "agent",
        "process.pid": os.getpid(),
    }
    processes = {
        point.attributes["nemo.gym.server.name"]: point.value for point in exported.points("gym.server.processes")
    }
    assert processes["agent"] >= 1 and processes["gone"] == 0
    (total,) = exported.points("gym.host.memory.total")
    (used,) = exported.points("gym.host.memory.usage")
    assert 0 < used.value < total.value


def test_a_peak_is_the_most_that_was_seen(start: Start, exported: Exported, monkeypatch: pytest.MonkeyPatch) -> None:
    start()
    sizes = iter([({"rss": 5}, 1), ({"rss": 9}, 1), ({"rss": 7}, 1)])
    monkeypatch.setattr("nemo_gym.telemetry.memory._usage_of_tree", lambda pid: next(sizes))
    profiler = MemoryProfiler(lambda: {"agent": WatchedServer("x", 1)})
    for _ in range(3):
        profiler.sample()
    assert exported.points("gym.server.memory.sampled_peak")[0].value == 9
    assert exported.points("gym.server.memory.usage")[0].value == 7


def _samples(run: RunTelemetry) -> bool:
    return run._memory is not None


def test_the_orchestrator_tells_how_many_servers_are_up(
    exported: Exported, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    for name in [name for name in os.environ if name.startswith(("NEMO_GYM_OTEL_", "OTEL_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    run = RunTelemetry()
    run.start({"enabled": True, "memory_profiling": {"enabled": True, "interval_seconds": 60}, "run_id": "r"})
    run.ready({"agent": WatchedServer("responses_api_agents", os.getpid())})
    assert exported.points("gym.servers.active")[0].value == 1
    assert _samples(run) and os.environ["NEMO_GYM_OTEL_RUN_ID"] == "r"
    run.stop()
    run.stop()
    assert exported.points("gym.servers.active")[0].value == 0 and not _samples(run)
    quiet = RunTelemetry()
    monkeypatch.setattr(os, "environ", {})
    quiet.start(None)
    quiet.ready({})
    quiet.stop()
    assert telemetry.get_telemetry() is None
