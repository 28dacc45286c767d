"""A folder to run in: the environment under test, commands in the background, and what must be gone afterwards."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.faults.books import Books
from tests.faults.injections import Disk
from tests.faults.points import FOLDER_ENV, Point
from tests.faults.processes import SCENE_ENV, end_all, listening, processes_of, still_listening
from tests.faults.waiting import wait_until
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
GYM = (sys.executable, "-c", "from nemo_gym.cli.main import main; main()")
COLLECTOR = (sys.executable, "-c", "from tests.faults.collector import main; main()")
STAGE_SECONDS = 3
SPINUP_SECONDS = 10
TASKS, REPEATS, IN_FLIGHT = 6, 2, 4
LEFTOVER_SECONDS = 10.0
READY_SECONDS = 30.0

SERVED = ("--resources-server", "held_counter", "--model-type", "openai_model")
ROWS = ("-i", "rows.jsonl", "--num-repeats", str(REPEATS), "--concurrency", str(IN_FLIGHT))
ROLLOUT_SECONDS = 6
STAGES = ("seed_timeout_s", "model_call_timeout_s", "tool_call_timeout_s", "verify_timeout_s", "aggregate_timeout_s")
BOUNDS = (f"+rollout_timeout_s={ROLLOUT_SECONDS}",)
SPINUP = (f"+server_spinup_timeout_seconds={SPINUP_SECONDS}",)
APART = ("+placement=process",)
SHARED = ("+placement=shared", "+placement_shards=2")


@dataclass
class Command:
    """A `gym` in the background; both of its streams go to a file."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def says(self, text: str, seconds: float = READY_SECONDS) -> bool:
        """Whether it writes the text before it ends or the time is up."""
        wait_until(lambda: text in self.text or self.process.poll() is not None, seconds)
        return text in self.text

    def ended(self, seconds: float) -> int | None:
        """The exit code; None when it still runs after that time."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None


@dataclass
class Scene:
    """One cell's folder, marks and files."""

    folder: Path
    tree: Path
    model_url: str
    disk_for: str | None = None
    mark: str = field(default_factory=lambda: secrets.token_hex(6))
    head_port: int = field(default_factory=free_port)
    ports: set[int] = field(default_factory=set)
    commands: list[Command] = field(default_factory=list)

    @contextmanager
    def prepared(self) -> Iterator[Scene]:
        """The folder made, the disk mounted; everything ended and unmounted with the block."""
        self.folder.mkdir(parents=True)
        disk = self.disk
        if disk is not None:
            disk.mount()
        try:
            for folder in (self.runs, self.temporary, self.points, self.output.parent):
                folder.mkdir(parents=True, exist_ok=True)
            self._write_files()
            yield self
        finally:
            end_all(self.mark)
            if disk is not None:
                disk.unmount()

    @property
    def disk(self) -> Disk | None:
        return None if self.disk_for is None else Disk(self.folder / "disk")

    @property
    def runs(self) -> Path:
        return self._on("runs")

    @property
    def output(self) -> Path:
        return self._on("out") / "r.jsonl"

    @property
    def temporary(self) -> Path:
        return self.folder / "tmp"

    @property
    def points(self) -> Path:
        return self.folder / "points"

    def point(self, name: str) -> Point:
        return Point(self.points, name)

    def start(self, *argv: str, program: tuple[str, ...] = GYM, **environment: str) -> Command:
        """Run a command in the background."""
        log = self.folder / f"{len(self.commands)}.log"
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [*program, *argv],
                cwd=self.folder,
                env={**self._environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )
        self.commands.append(Command(process, log))
        return self.commands[-1]

    def serve(self) -> Command:
        """Servers only."""
        return self.start("env", "start", *SERVED, *SPINUP, *APART)

    def collect(self, *more: str, **environment: str) -> Command:
        """A collector only."""
        chosen = ("eval", "run", "--no-serve", "--agent", "held_agent")
        return self.start(*chosen, *self._rows, *BOUNDS, *more, program=COLLECTOR, **environment)

    def run(self, *more: str, shared: bool = False) -> Command:
        """Servers and collector in one command."""
        placement = SHARED if shared else APART
        return self.start("eval", "run", *SERVED, *self._rows, *BOUNDS, *SPINUP, *placement, *more, program=COLLECTOR)

    def note_ports(self) -> None:
        """Remember what listens now, to look for it later."""
        self.ports |= listening(self.mark)

    def books(self) -> Books:
        return Books.read(self.output, self.points / "effects.jsonl")

    def measured(self) -> int:
        """Whole records so far."""
        return self.output.read_bytes().count(b"\n") if self.output.exists() else 0

    def leftovers(self, seconds: float = LEFTOVER_SECONDS) -> list[str]:
        """What is still there of processes, ports and folders after that time; empty as soon as nothing is."""
        wait_until(lambda: not self._remains(), seconds)
        return self._remains()

    def _remains(self) -> list[str]:
        alive = [f"process {pid} ({name})" for pid, name in processes_of(self.mark).items()]
        ports = [f"port {port}" for port in sorted(still_listening(self.ports, self.mark))] if self.ports else []
        folders = [f"run folder {path.name}" for path in self.runs.glob("*/*")]
        temporary = [f"temporary {path.name}" for path in self.temporary.iterdir()]
        return [*alive, *ports, *folders, *temporary]

    def sweep(self) -> None:
        """Do by force what should have happened, so that the rest of the cell says something."""
        end_all(self.mark)
        for path in (*self.runs.glob("*/*"), *self.temporary.iterdir()):
            shutil.rmtree(path, ignore_errors=True)

    def hidden_files(self) -> list[str]:
        """Locks and half-made files beside the results."""
        return sorted(path.name for path in self.output.parent.glob(".*"))

    def stop(self, command: Command) -> int | None:
        """End a command in order; its exit code."""
        command.process.send_signal(signal.SIGTERM)
        return command.ended(LEFTOVER_SECONDS)

    @property
    def _rows(self) -> tuple[str, ...]:
        return (*ROWS, "-o", str(self.output.relative_to(self.folder)))

    @property
    def _environment(self) -> dict[str, str]:
        dropped = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "NEMO_GYM_RUN_DIR", "NEMO_GYM_EXTRA_ROOTS")
        kept = {name: value for name, value in os.environ.items() if name not in dropped}
        own = {
            "XDG_RUNTIME_DIR": str(self.runs),
            "TMPDIR": str(self.temporary),
            "PYTHONPATH": str(ROOT),
            "NEMO_GYM_EXTRA_ROOTS": str(self.tree),
            FOLDER_ENV: str(self.points),
            SCENE_ENV: self.mark,
        }
        return kept | own

    def _on(self, name: str) -> Path:
        return self.folder / "disk" / name if self.disk_for == name else self.folder / name

    def _write_files(self) -> None:
        settings: dict[str, Any] = {
            "head_server": {"port": self.head_port},
            "policy_base_url": self.model_url,
            "policy_api_key": "key-for-tests",
            "policy_model_name": "mock",
            **dict.fromkeys(STAGES, STAGE_SECONDS),
        }
        (self.folder / "env.yaml").write_text(yaml.safe_dump(settings))
        (self.folder / "rows.jsonl").write_text("".join(json.dumps(row(number)) + "\n" for number in range(TASKS)))


def row(number: int) -> dict[str, Any]:
    """A task whose model calls the tool once and then answers."""
    parameters = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    tool = {"type": "function", "name": "add", "description": "Add one.", "parameters": parameters, "strict": True}
    content = f"Task {number}: add one, then say that you did."
    return {"responses_create_params": {"input": [{"role": "user", "content": content}], "tools": [tool]}}
