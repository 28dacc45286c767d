"""Programs that export by themselves, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def run(program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if "OTEL" not in name}
    environment = {**inherited, **{f"NEMO_GYM_OTEL_{name}": value for name, value in variables.items()}}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done


PROGRAM = """
import logging
from nemo_gym import telemetry
masked = lambda text: text.replace("sk", "**")
telemetry.init_telemetry("agent", "responses_api_agents", {"extra": "fact"}, redact=masked)
with telemetry.managed_span("rollout", "gym.rollout", **{"nemo.gym.rollout.id": "0-1"}):
    telemetry.record("gym.servers.active", 3)
    logging.getLogger("toy").warning("key %s", "sk-1")
print("done")
"""


def test_the_console_shows_spans_metrics_and_logs() -> None:
    done = run(
        PROGRAM + "telemetry.shutdown_telemetry()", ENABLED="1", EXPORTER="console", RUN_ID="r7", LOGS_ENABLED="1"
    )
    assert done.stdout == "done\n", "what a program prints stays its own"
    assert '"name": "gym.rollout"' in done.stderr and '"nemo.gym.rollout.id": "0-1"' in done.stderr
    assert '"name": "gym.servers.active"' in done.stderr
    for fact in (
        '"service.name": "nemo-gym/agent"',
        '"nemo.gym.server.type": "responses_api_agents"',
        '"extra": "fact"',
    ):
        assert fact in done.stderr
    for fact in ('"nemo.gym.run.id": "r7"', '"nemo.gym.service_group": "nemo-gym"', '"rank": 0', '"world_size": 1'):
        assert fact in done.stderr
    assert "key **-1" in done.stderr


def test_a_program_that_just_ends_has_told_everything() -> None:
    done = run(PROGRAM, ENABLED="1", EXPORTER="console", SERVICE_NAME_PER_SERVER="0")
    assert '"name": "gym.rollout"' in done.stderr and '"service.name": "nemo-gym"' in done.stderr


def test_a_program_that_just_ends_waits_no_longer_than_that_for_whoever_takes_nothing() -> None:
    begun = """
import atexit, threading
from opentelemetry.sdk.trace.export import ConsoleSpanExporter
ConsoleSpanExporter.export = lambda self, spans: threading.Event().wait()
"""
    ended = "\natexit.register(telemetry.shutdown_telemetry, 100)"
    assert run(begun + PROGRAM + ended, ENABLED="1", EXPORTER="console").stdout == "done\n"


def test_a_fork_exports_for_itself() -> None:
    program = """
import os
from nemo_gym import telemetry
telemetry.init_telemetry("parent", "x")
if os.fork() == 0:
    assert telemetry.get_telemetry() is None
    os._exit(0)
assert os.wait()[1] == 0 and telemetry.get_telemetry() is not None
"""
    run(program, ENABLED="1", EXPORTER="console")


def has_otlp() -> bool:
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.skipif(has_otlp(), reason="the extra is installed")
def test_without_the_extra_otlp_says_what_to_install() -> None:
    done = run(
        "from nemo_gym import telemetry; telemetry.init_telemetry('a', 'b'); print(telemetry.get_telemetry())",
        ENABLED="1",
    )
    assert done.stdout == "None\n" and "nemo-gym[telemetry]" in done.stderr


@pytest.mark.parametrize(("name", "value"), [("EXPORTER", "carrier-pigeon"), ("SPAN_GROUPS", "x")])
def test_a_wrong_word_is_named(name: str, value: str) -> None:
    done = run("from nemo_gym import telemetry; telemetry.init_telemetry('a', 'b')", ENABLED="1", **{name: value})
    assert repr(value) in done.stderr and "Traceback" not in done.stderr


def test_off_loads_nothing_of_opentelemetry() -> None:
    program = """
import json, sys
from nemo_gym import server_utils, telemetry
telemetry.init_telemetry("agent", "x")
with telemetry.managed_span("job", "gym.job"):
    pass
print(json.dumps([name for name in sys.modules if name.startswith("opentelemetry.sdk")]))
"""
    assert json.loads(run(program).stdout) == []
