"""The real command line in real processes, each test with folders, ports and runs of its own."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self

import yaml

from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
GYM = (sys.executable, "-c", "from nemo_gym.cli.main import main; main()")
SECONDS = 120.0


def legacy(name: str) -> tuple[str, ...]:
    """The command that an installed legacy script amounts to."""
    return (sys.executable, "-c", f"import sys; sys.argv[0] = {name!r}; from nemo_gym.cli.legacy import main; main()")


@dataclass(frozen=True)
class Ended:
    """How a command ended; the output of both streams apart."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """What a person is told; never a traceback."""
        assert "Traceback" not in self.err, self.err
        return self.err.strip()


@dataclass
class Workplace:
    """A folder to run commands in, with an env.yaml of its own."""

    folder: Path
    head_port: int = field(default_factory=free_port)

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    @property
    def environment(self) -> dict[str, str]:
        dropped = ("PYTHONDONTWRITEBYTECODE", "NEMO_GYM_RUN_DIR", "NEMO_GYM_EXTRA_ROOTS")
        kept = {name: value for name, value in os.environ.items() if name not in dropped}
        return {**kept, "XDG_RUNTIME_DIR": str(self.runs), "PYTHONPATH": str(ROOT)}

    def write_env(self, **settings: Any) -> None:
        """Write env.yaml; the head server's port is always this workplace's."""
        self.runs.mkdir(exist_ok=True)
        content = {"head_server": {"port": self.head_port}, **settings}
        (self.folder / "env.yaml").write_text(yaml.safe_dump(content))

    @classmethod
    def bare(cls, folder: Path) -> Self:
        """With an empty env.yaml: everything comes from the command line."""
        workplace = cls(folder)
        workplace.runs.mkdir()
        (folder / "env.yaml").write_text("")
        return workplace

    def write_rows(self, name: str, rows: Sequence[Mapping[str, Any]]) -> str:
        (self.folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        return name

    def lines(self, name: str) -> int:
        """Whole lines of a file; 0 when there is none."""
        path = self.folder / name
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def read_rows(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / name).read_text().split("\n") if line]

    def gym(self, *argv: str, program: Sequence[str] = GYM, **environment: str) -> Ended:
        """Run a command to its end."""
        done = subprocess.run(
            [*program, *argv],
            cwd=self.folder,
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    @contextmanager
    def started(self, *argv: str, program: Sequence[str] = GYM, **environment: str) -> "Iterator[Background]":
        """Run a command in the background; it is ended with the block if it still runs."""
        process = subprocess.Popen(
            [*program, *argv],
            cwd=self.folder,
            env={**self.environment, "PYTHONUNBUFFERED": "1", **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        background = Background(process)
        try:
            yield background
        finally:
            if process.poll() is None:
                background.stop(signal.SIGTERM)


class Background:
    """A command that runs, and what it has written so far."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None
        self.process = process
        self.text = ""
        self._chunks: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, args=(process.stdout,), daemon=True)
        self._reader.start()

    def _read(self, stream: IO[bytes]) -> None:
        while chunk := os.read(stream.fileno(), 1 << 16):
            self._chunks.put(chunk.decode(errors="replace"))
        self._chunks.put(None)

    def wait_for(self, text: str) -> str:
        """Everything written so far, once `text` is in it."""
        while text not in self.text:
            chunk = self._chunks.get(timeout=SECONDS)
            if chunk is None:
                raise AssertionError(f"ended with {self.process.wait()} before writing {text!r}:\n{self.text}")
            self.text += chunk
        return self.text

    def wait_until(self, happened: Callable[[], bool]) -> None:
        """Return once the command is seen to have done something that sends no event, such as writing a file."""
        deadline = time.monotonic() + SECONDS
        while not happened():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.ended()
                raise AssertionError(f"ended with {self.process.returncode} before it happened:\n{self.text}")
            time.sleep(0.01)

    def stop(self, number: signal.Signals) -> int:
        """Signal the command and wait until it has ended; its exit code."""
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> int:
        """The exit code, once it has ended and everything it wrote is read."""
        deadline = time.monotonic() + SECONDS
        while (chunk := self._chunks.get(timeout=SECONDS)) is not None:
            self.text += chunk
            assert time.monotonic() < deadline, f"it goes on and on:\n{self.text[-2000:]}"
        code = self.process.wait(SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be buried doesn't."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return status not in ("Z", "X")


def question(number: int, *, answer: str = "A") -> dict[str, Any]:
    """A single-turn mcqa row."""
    text = f"Question {number}: which letter comes first?\nA: a\nB: b\nAnswer with a boxed letter."
    return {
        "responses_create_params": {"input": [{"role": "user", "content": text}]},
        "uuid": str(number),
        "options": [{"A": "a"}, {"B": "b"}],
        "expected_answer": answer,
    }
