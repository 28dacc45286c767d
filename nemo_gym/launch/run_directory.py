"""The folder of a run, and how other commands find the runs that are alive."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nemo_gym.config.errors import ConfigError
from nemo_gym.config.handover import INSTANCE_ENV, RUN_DIR_ENV, create_private_directory, run_directory, write_token
from nemo_gym.config.replacing import write_private
from nemo_gym.launch.ages import shown_seconds
from nemo_gym.launch.command_line import shown_command
from nemo_gym.launch.errors import LaunchError, RunNotFoundError
from nemo_gym.launch.linux import process_start, seconds_since_start
from nemo_gym.launch.run_files import (
    CONFIG_FILE_NAME,
    FOLDERS,
    LOGS_FOLDER_NAME,
    RUN_FILE_NAME,
    foreign_entries,
    remove_run_files,
)


@dataclass(frozen=True)
class RunInfo:
    """What a run says about itself. `started` tells its process from a later one with the same pid.

    `servers` are the records of `/server_instances`; `logs` maps each server's name to its log file.
    `working_directory` is where its command was typed; empty where nobody knows.
    """

    directory: Path
    pid: int
    started: str
    head_host: str
    head_port: int
    command: str
    servers: list[dict[str, Any]] = field(default_factory=list)
    logs: dict[str, str] = field(default_factory=dict)
    working_directory: str = ""

    @property
    def title(self) -> str:
        """Which run this is, for a person: `port 11000 (pid 7, up 5 min 12 s, in /data/mine): gym env start`."""
        up = seconds_since_start(self.started)
        facts = [f"pid {self.pid}", *([] if up is None else [f"up {shown_seconds(up)}"])]
        facts += [f"in {self.working_directory}"] if self.working_directory else []
        return f"port {self.head_port} ({', '.join(facts)}): {self.command}"

    @property
    def head_url(self) -> str:
        """Where this machine reaches the head server; one bound to every address is called at the loopback one."""
        host = "127.0.0.1" if self.head_host in ("", "0.0.0.0", "::") else self.head_host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.head_port}"

    @property
    def is_alive(self) -> bool:
        return process_start(self.pid) == self.started


@dataclass(frozen=True)
class RunDirectory:
    """The folder itself: token, config, run file and logs, all for this user only."""

    path: Path

    @classmethod
    def create(cls, head_port: int | str) -> RunDirectory:
        """Make the folder of a new run, in place of what a dead run left there.

        Raises LaunchError when a live run of another process has it, or when it can't be written.
        """
        path = _directory_for(head_port)
        info = read_run(path)
        if info is not None and info.is_alive and info.pid != os.getpid():
            raise LaunchError(
                f"The folder {path} belongs to the run of pid {info.pid} ({info.command}): "
                f"stop that run, use another +head_server.port, or set {RUN_DIR_ENV} to another folder."
            )
        if foreign := foreign_entries(path):
            raise LaunchError(
                f"{path} holds things that are no run's ({foreign[0]}, …): set {RUN_DIR_ENV} to a folder for runs only."
            )
        try:
            remove_run_files(path)
            create_private_directory(path)
            for folder in FOLDERS:
                (path / folder).mkdir(mode=0o700, exist_ok=True)
            write_token(path)
        except (OSError, ConfigError) as error:
            reason = getattr(error, "strerror", None) or error
            remove_run_files(path)  # what a full disk left unfinished
            raise LaunchError(
                f"The run's folder {path} can't be made ({reason}): set {RUN_DIR_ENV} to a folder of your own."
            ) from error
        return cls(path)

    @property
    def config_file(self) -> Path:
        return self.path / CONFIG_FILE_NAME

    def log_file(self, name: str, folder: Path | None = None) -> Path:
        """Where a server writes; `folder` is one the user asked to keep."""
        return (folder or self.path / LOGS_FOLDER_NAME) / f"{name.replace('/', '_')}.log"

    def publish(
        self, head_host: str, head_port: int, servers: list[dict[str, Any]], logs: Mapping[str, Path]
    ) -> RunInfo:
        """Write the run file, whole or not at all; from then on other commands see the run."""
        info = RunInfo(
            self.path,
            os.getpid(),
            process_start(os.getpid()) or "",
            head_host,
            head_port,
            shown_command(sys.argv),
            servers,
            {name: str(path) for name, path in logs.items()},
            working_directory(),
        )
        write_private(self.path / RUN_FILE_NAME, json.dumps({**info.__dict__, "directory": str(self.path)}))
        return info

    def remove(self) -> None:
        remove_run_files(self.path)


def runs_folder() -> Path:
    """The folder that holds the folders of this user's runs."""
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return Path(base) / f"nemo-gym-{os.getuid()}"


def read_run(directory: Path) -> RunInfo | None:
    """What a folder's run file says; None when there is none that can be read."""
    try:
        if directory.lstat().st_uid != os.getuid():
            return None
        content = json.loads((directory / RUN_FILE_NAME).read_text(encoding="utf-8"))
        return RunInfo(**{**content, "directory": directory})
    except (OSError, ValueError, TypeError):
        return None


def running() -> list[RunInfo]:
    """This user's live runs, by head port; folders of dead ones are removed on the way."""
    alive = []
    for directory in _run_directories():
        info = read_run(directory)
        if info is None:
            continue
        if info.is_alive:
            alive.append(info)
        else:
            remove_run_files(directory)
    return sorted(alive, key=lambda info: info.head_port)


def the_run(port: int | None = None, *, command: str | None = None) -> RunInfo:
    """The run a command means: the one at `port`, or the only one.

    `command`, as in `gym env stop`, is what somebody typed who must not meet another project's run: without a port it
    never means one that was started in another folder. Raises RunNotFoundError, which lists the runs there are, each
    with what to type for it.
    """
    runs = running()
    if port is not None:
        runs = [info for info in runs if info.head_port == port]
    if not runs:
        at = "" if port is None else f" with head server port {port}"
        raise RunNotFoundError(f"No run{at} is alive: start one with `gym env start`.")
    if len(runs) > 1:
        raise RunNotFoundError(_choices("Several runs are alive: choose one with --port.", runs, command))
    if port is None and command is not None and runs[0].working_directory != working_directory():
        raise RunNotFoundError(_choices("The only run alive was started in another folder.", runs, command))
    return runs[0]


def _choices(why: str, runs: Iterable[RunInfo], command: str | None) -> str:
    """The runs, each with the command that means it."""
    lines = [why]
    for info in runs:
        lines += [f"- {info.title}", f"  `{command or 'gym ps'} --port {info.head_port}`"]
    return "\n".join(lines)


def working_directory() -> str:
    """Where this command was typed; empty when that folder is gone."""
    try:
        return str(Path.cwd())
    except OSError:
        return ""


def _directory_for(head_port: int | str) -> Path:
    """Inside a server of another run, the inherited variable names that run's folder, not ours."""
    if isinstance(head_port, str) or INSTANCE_ENV in os.environ:
        return runs_folder() / str(head_port)
    return run_directory(head_port)


def _run_directories() -> Iterator[Path]:
    named = os.environ.get(RUN_DIR_ENV)
    if named:
        yield Path(named)
    folder = runs_folder()
    if folder.is_dir():
        yield from (child for child in sorted(folder.iterdir()) if child.is_dir())
