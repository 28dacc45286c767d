"""A Ray head that takes jobs, as the container runs one, by Ray's own commands; and jobs on it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.ports import free_port
from tests.ray.cluster import OBJECT_STORE_BYTES, RAY_ENVIRONMENT

SECONDS = 120.0


@dataclass(frozen=True)
class JobHead:
    folder: Path
    variables: Mapping[str, str]
    dashboard: int

    def ray(self, *arguments: str) -> str:
        """What one of Ray's commands writes."""
        done = subprocess.run(
            [str(Path(sys.executable).with_name("ray")), *arguments],
            env=dict(self.variables),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return done.stdout

    def job(self, command: str, *arguments: str) -> str:
        return self.ray("job", command, "--address", f"http://127.0.0.1:{self.dashboard}", *arguments)

    def wait_for(self, job: str, *texts: str) -> str:
        """A job's log, once one of the texts is in it; asked for as Ray's own command does, without starting it."""
        deadline = time.monotonic() + SECONDS
        while not any(text in (log := self.log(job)) for text in texts):
            assert time.monotonic() < deadline, log
            time.sleep(0.1)
        return log

    def log(self, job: str) -> str:
        """What a job has written so far."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.dashboard}/api/jobs/{job}/logs", timeout=SECONDS) as reply:
            return str(json.load(reply)["logs"])

    def end(self) -> None:
        """Kill every process that has this head's folder in its environment."""
        needle = f"RAY_TMPDIR={self.folder}".encode()
        for process in psutil.process_iter():
            try:
                if needle in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0"):
                    process.send_signal(signal.SIGKILL)
            except (OSError, psutil.Error):
                continue


@contextmanager
def job_head(**environment: str) -> Iterator[JobHead]:
    """A head with the CLI's own `ray` on the path; nothing of it is left behind."""
    folder = Path(tempfile.mkdtemp(prefix="grj-"))
    (folder / "run").mkdir(mode=0o700)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", "")])
    variables = {**kept, **RAY_ENVIRONMENT, "RAY_TMPDIR": str(folder), "XDG_RUNTIME_DIR": str(folder / "run")}
    head = JobHead(folder, {**variables, "PATH": path, **environment}, free_port())
    try:
        head.ray(
            *("start", "--head", "--disable-usage-stats", "--num-gpus=0", "--num-cpus=1", f"--port={free_port()}"),
            *(f"--dashboard-port={head.dashboard}", "--dashboard-agent-listen-port=0"),
            f"--object-store-memory={OBJECT_STORE_BYTES}",
        )
        yield head
    finally:
        head.end()
        shutil.rmtree(folder, ignore_errors=True)
