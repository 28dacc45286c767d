"""Several runs on one machine, and runs whose output nobody takes."""

from __future__ import annotations

import json
import socket
import subprocess
from contextlib import ExitStack, suppress

import pytest
import yaml

from tests.e2e.harness import GYM, Workplace, question
from tests.e2e.test_supervision import RUN
from tests.mock_provider import MockProvider, Reply

USUAL = 11000


@pytest.fixture
def crowded(place: Workplace) -> Workplace:
    """A workplace that names no port for its head server, on a machine where the usual one is taken."""
    settings = yaml.safe_load((place.folder / "env.yaml").read_text())
    del settings["head_server"]
    (place.folder / "env.yaml").write_text(yaml.safe_dump(settings))
    place.write_rows("rows.jsonl", [question(number) for number in range(3)])
    return place


def test_a_second_run_takes_a_port_of_its_own_and_says_so(crowded: Workplace) -> None:
    with ExitStack() as stack, MockProvider(Reply(text="\\boxed{A}", latency=600)) as mock:
        with suppress(OSError):  # somebody else's is as good
            stack.enter_context(socket.create_server(("127.0.0.1", USUAL)))
        done = crowded.gym(*RUN)
        assert done.code == 0, done.err
        assert f"Note: port {USUAL} is taken by " in done.err and crowded.lines("r.jsonl") == 3
        asked = crowded.gym(*RUN, f"+head_server.port={USUAL}")
        assert asked.code == 1 and f"Port {USUAL} on 127.0.0.1, meant for head_server" in asked.error
        assert crowded.gym("env", "start", *RUN[2:6]).code != 0, "whoever starts servers for others has to say where"
        with crowded.started(*RUN, f"++policy_base_url={mock.base_url}") as run:
            text = run.wait_for("is taken by")
            run.wait_until(lambda: any(crowded.runs.glob("*/*/run.json")))
            seen = json.loads(crowded.gym("ps", "--json").out)
            assert seen["pid"] == run.process.pid and seen["port"] != USUAL
            run.wait_for(f"`gym ps --port {seen['port']}`")
            stopped = crowded.gym("env", "stop", "--port", str(seen["port"]))
            assert stopped.code == 0 and text


@pytest.mark.parametrize("redirection", [">/dev/full", ">&-"])
def test_a_run_whose_output_nobody_takes_measures_all_the_same(place: Workplace, redirection: str) -> None:
    place.write_rows("rows.jsonl", [question(number) for number in range(3)])
    done = subprocess.run(
        ["bash", "-c", f'"$@" {redirection}', "bash", *GYM, *RUN],
        cwd=place.folder,
        env=place.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("Error: standard output can't be written: ")
    assert place.lines("r.jsonl") == 3 and (place.folder / "r_aggregate_metrics.json").exists()
    assert list(place.runs.glob("*/*")) == []
