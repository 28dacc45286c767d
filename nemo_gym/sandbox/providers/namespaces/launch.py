"""Starting a program in a box, and what became of it."""

from __future__ import annotations

import contextlib
import marshal
import os
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from nemo_gym.sandbox.processes import Finished, Program
from nemo_gym.sandbox.providers.namespaces.box import interpreter

JAIL = Path(__file__).with_name("jail.py")
GRACE_SECONDS = 5.0


@dataclass(frozen=True)
class Ended:
    """What a program did.

    `exit_code` is None when a signal ended it, `signal` then is that. `ended_for` says which limit it was ended for:
    `wall`, `disk`, `output`, `memory` (of its cgroup), else it is empty. `error`: it could not be started at all.
    """

    stdout: bytes = b""
    stderr: bytes = b""
    exit_code: int | None = None
    signal: int | None = None
    ended_for: str = ""
    error: str = ""
    errno: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    max_rss_mib: float = 0.0

    @property
    def return_code(self) -> int:
        """As a shell tells it."""
        return self.exit_code if self.exit_code is not None else 128 + (self.signal or signal.SIGKILL)


@dataclass(frozen=True)
class Jailed:
    """A program and the spec of its jail. `ends_on_excess`: too much output ends it, instead of being cut."""

    argv: Sequence[str]
    spec: Mapping[str, Any]
    cwd: str
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: bytes = b""
    max_output_bytes: int = 1024 * 1024
    ends_on_excess: bool = False

    async def run(self) -> Ended:
        """Run it to its end. When the caller is cancelled, it and all it started are ended."""
        wall_s = self.spec["limits"]["wall_s"]
        with contextlib.ExitStack() as stack:
            stdin = stack.enter_context(file_of(self.stdin))
            report = stack.enter_context(contextlib.closing(Report()))
            told, argv = stack.enter_context(jail_command(self._whole_spec(), report))
            program = Program(
                argv=argv,
                env={},
                stdin_fd=stdin.fileno(),
                pass_fds=(told.fileno(), report.sink),
                max_output_bytes=self.max_output_bytes,
                ends_on_excess=self.ends_on_excess,
                after_start=report.handed_over,
            )
            finished = await program.run(None if wall_s is None else wall_s + GRACE_SECONDS)
            return ended(finished, report.read())

    def _whole_spec(self) -> dict[str, Any]:
        return {**self.spec, "argv": list(self.argv), "env": dict(self.env), "cwd": self.cwd}


@contextlib.contextmanager
def jail_command(spec: Mapping[str, Any], report: Report) -> Iterator[tuple[IO[bytes], list[str]]]:
    """The open file with the spec, and the command that takes the numbers of that and of the report."""
    with file_of(marshal.dumps(dict(spec))) as told:
        yield told, [interpreter(), "-I", "-S", str(JAIL), str(told.fileno()), str(report.sink)]


class Report:
    """The pipe that the watcher of a jail reports on; closing it ends the jail."""

    def __init__(self) -> None:
        self._source, self.sink = os.pipe()
        self._is_ours = True

    def handed_over(self) -> None:
        """The jail has its own copy of the end it writes to."""
        if self._is_ours:
            self._is_ours = False
            os.close(self.sink)

    def read(self) -> dict[str, Any]:
        """The report of a jail that has ended, {} if it was killed before."""
        os.set_blocking(self._source, False)
        try:
            content = os.read(self._source, 65536)
        except BlockingIOError:
            content = b""
        report: dict[str, Any] = marshal.loads(content) if content else {}
        return report

    def close(self) -> None:
        self.handed_over()
        os.close(self._source)


def ended(finished: Finished, report: Mapping[str, Any]) -> Ended:
    """Both accounts of a program's end as one."""
    status = report.get("status")
    code = None if status is None else os.waitstatus_to_exitcode(status)
    reason = "output" if finished.excess else "wall" if finished.timed_out else report.get("ended_for", "")
    error = report.get("error", "")
    if not report and not reason:
        error = finished.stderr.decode("utf-8", "replace").strip()[-500:] or "the jail was ended from outside"
    return Ended(
        stdout=finished.stdout,
        stderr=finished.stderr,
        exit_code=code if code is not None and code >= 0 else None,
        signal=-code if code is not None and code < 0 else None,
        ended_for=reason,
        error=error,
        errno=report.get("errno", 0),
        cpu_s=report.get("cpu_s", 0.0),
        wall_s=report.get("wall_s", 0.0),
        max_rss_mib=report.get("max_rss_kib", 0) / 1024,
    )


@contextlib.contextmanager
def file_of(content: bytes) -> Iterator[IO[bytes]]:
    """An open file with a content, to read from the start and nothing else; nobody finds it by a name."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("nemo-gym"), "wb") as file:
            file.write(content)
            file.flush()
            with Path(f"/proc/self/fd/{file.fileno()}").open("rb", buffering=0) as readable:
                yield readable
        return
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        yield file
