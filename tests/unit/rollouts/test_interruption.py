"""Ending a collection by a signal."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nemo_gym.rollouts.interruption import resume_command, run_until_signal
from nemo_gym.rollouts.outputs import ResultSet
from tests.unit.rollouts.fakes import read_jsonl

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
            for number in (signal.SIGINT, signal.SIGTERM):
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


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 75)])
def test_a_signal_closes_the_books_and_says_how_to_go_on(tmp_path: Path, number: signal.Signals, code: int) -> None:
    """Also when it is said twice, as `timeout` does."""
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
    _, said = process.communicate(timeout=60)
    assert process.returncode == code, said
    output = tmp_path / "out.jsonl"
    assert said.splitlines()[-2:] == [
        f"Stopped: 2 of 3 rollouts are saved in {output}. Go on with:",
        f"gym eval run --no-serve --agent math_agent --output {output} --resume",
    ]
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


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        ("eval run -o x.jsonl", "gym eval run -o x.jsonl --resume"),
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
