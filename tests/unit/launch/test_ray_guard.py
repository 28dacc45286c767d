"""What is killed of a cluster of ours, and what isn't."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from nemo_gym.launch.linux import process_start
from nemo_gym.launch.ray_guard import descendants, guard


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "300"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def test_what_was_called_off_leaves_everything_alone(sleeper: subprocess.Popen[bytes]) -> None:
    before = descendants()
    dismiss = guard([sleeper.pid])
    assert len(descendants() - before) == 1
    dismiss()
    assert descendants() == before and sleeper.poll() is None


def test_what_is_guarded_ends_with_whoever_is_killed(sleeper: subprocess.Popen[bytes]) -> None:
    code = (
        "import os, signal; from nemo_gym.launch.ray_guard import guard; "
        f"guard([{sleeper.pid}]); os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    assert sleeper.wait(60) == -signal.SIGKILL


def test_a_later_process_of_the_same_number_is_another(sleeper: subprocess.Popen[bytes]) -> None:
    lifeline, held = os.pipe()
    os.close(held)
    started = process_start(sleeper.pid)
    code = (
        "from nemo_gym.launch import ray_guard; ray_guard._GRACE_SECONDS = 0.0; "
        f"ray_guard.main(0, {{{sleeper.pid}: {started!r} + '1'}}); print('done')"
    )
    ended = subprocess.run([sys.executable, "-c", code], stdin=lifeline, capture_output=True, text=True, check=True)
    os.close(lifeline)
    assert ended.stdout == "done\n" and sleeper.poll() is None
