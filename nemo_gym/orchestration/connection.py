"""How scripts and files reach the machine that jobs are submitted on: this one, or one by SSH."""

import shutil
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nemo_gym.orchestration.errors import SubmissionError

_SSH_FAILED = 255
_SSH_OPTIONS = ("BatchMode=yes", "StrictHostKeyChecking=accept-new", "ConnectTimeout=20")


@dataclass(frozen=True)
class Answer:
    """How a script ended there."""

    code: int
    out: str
    err: str


class Connection(ABC):
    """A machine with a shell. Scripts go in by stdin, so that nothing of them is in a list of processes."""

    @abstractmethod
    def command(self) -> list[str]:
        """The program that reads a script."""

    @abstractmethod
    def send(self, folder: Path, target: str) -> None:
        """Copy what is in a folder here into a folder there that exists. Raises SubmissionError."""

    def run(self, script: str) -> Answer:
        """Run a bash script there to its end. Raises SubmissionError where there is no way to."""
        try:
            done = subprocess.run(
                self.command(), input=script, capture_output=True, text=True, errors="replace", check=False
            )
        except OSError as error:
            raise SubmissionError(f"{self.command()[0]} can't be run: {error.strerror}.") from None
        self._check(done)
        return Answer(done.returncode, done.stdout, done.stderr)

    def show(self, script: str) -> int:
        """Run a bash script there with its output shown here, until it ends or Ctrl-C; its exit code."""
        process = subprocess.Popen(
            self.command(), stdin=subprocess.PIPE, stdout=sys.stdout, stderr=sys.stderr, text=True
        )
        try:
            process.communicate(script)
        except KeyboardInterrupt:
            process.terminate()
            process.wait()
            return 130
        return process.returncode

    def _check(self, done: "subprocess.CompletedProcess[str]") -> None:  # noqa: B027 - nothing to check here
        """Raise SubmissionError where it was not the script that failed."""


class Here(Connection):
    """This machine."""

    def command(self) -> list[str]:
        return ["bash", "-s"]

    def send(self, folder: Path, target: str) -> None:
        try:
            shutil.copytree(folder, target, dirs_exist_ok=True)
        except (OSError, shutil.Error) as error:
            raise SubmissionError(f"The job's files can't be written to {target}: {error}.") from None


class Ssh(Connection):
    """Another machine, over one connection that all calls share. Nobody is asked for a password."""

    def __init__(self, host: str, socket: Path) -> None:
        self.host = host
        self._options = [
            word
            for option in (*_SSH_OPTIONS, "ControlMaster=auto", "ControlPersist=60", f"ControlPath={socket}")
            for word in ("-o", option)
        ]

    def command(self) -> list[str]:
        return ["ssh", *self._options, self.host, "bash -s"]

    def send(self, folder: Path, target: str) -> None:
        shell = " ".join(["ssh", *self._options])
        command = ["rsync", "--archive", "--delete", "-e", shell, f"{folder}/", f"{self.host}:{target}/"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        except OSError as error:
            raise SubmissionError(f"rsync can't be run: {error.strerror}; install it to submit by SSH.") from None
        if done.returncode:
            raise SubmissionError(f"The job's files can't be sent to {self.host}:{target}: {_last_line(done.stderr)}.")

    def close(self) -> None:
        subprocess.run(
            ["ssh", *self._options, "-O", "exit", self.host],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )

    def _check(self, done: "subprocess.CompletedProcess[str]") -> None:
        if done.returncode == _SSH_FAILED:
            raise SubmissionError(
                f"{self.host} can't be reached: {_last_line(done.stderr)}; "
                f"check `ssh -o BatchMode=yes {self.host} true`."
            )


@contextmanager
def connected(hostname: str | None) -> Iterator[Connection]:
    """A connection to a host; to this machine without one."""
    if hostname is None:
        yield Here()
        return
    with tempfile.TemporaryDirectory(prefix="gym-ssh-") as folder:
        ssh = Ssh(hostname, Path(folder) / "socket")
        try:
            yield ssh
        finally:
            ssh.close()


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].rstrip(".") if lines else "it says nothing more"
