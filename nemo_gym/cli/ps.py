"""`gym ps`: what a run's servers and rollouts are doing, and why it is stuck; `gym env restart`."""

import json
import shutil
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from nemo_gym.cli.runs import chosen_port
from nemo_gym.cli.text_table import Column, printable, table_lines
from nemo_gym.errors import UsageError

if TYPE_CHECKING:
    from nemo_gym.launch.run_directory import RunInfo
    from nemo_gym.launch.view import CollectorView, RolloutView, RunView, ServerView

WATCH_SECONDS = 1.0
RESTART_SECONDS = 600.0
_LOOK_SECONDS = 0.1
_HOME, _END_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"
_OTHER_SCREEN, _OWN_SCREEN = "\x1b[?1049h", "\x1b[?1049l"

_SERVER_COLUMNS = (
    Column("SERVER"),
    Column("TYPE", 8),
    Column("PID", 3, is_number=True),
    Column("PROCESS", 9),
    Column("STATE"),
    Column("RESTARTS", 4, is_number=True),
    Column("UP", 6, is_number=True),
    Column("CPU", 5, is_number=True),
    Column("MEMORY", 5, is_number=True),
    Column("SESSIONS", 7, is_number=True),
    Column("SERVED", 7, is_number=True),
    Column("IN FLIGHT", 0, is_number=True),
    Column("OLDEST", 0, is_number=True),
)
_ROLLOUT_COLUMNS = (
    Column("ROLLOUT"),
    Column("STAGE"),
    Column("FOR", is_number=True),
    Column("AGE", 2, is_number=True),
    Column("RETRIES", 3, is_number=True),
    Column("SERVER", 1),
    Column("DETAIL", 4),
)


def ps(overrides: Sequence[str], *, as_json: bool = False, watch: bool = False) -> None:
    """Show the run that is meant: once, or again every second until Ctrl-C. Raises RunNotFoundError without one."""
    from nemo_gym.launch.inspection import inspect
    from nemo_gym.launch.run_directory import the_run

    info = the_run(chosen_port(overrides))
    if watch:
        _watch(info, as_json=as_json)
    else:
        print(_text(inspect(info), as_json=as_json))


def restart(name: str | None, overrides: Sequence[str]) -> None:
    """End a server of a run and start it anew on its address; returns when it serves.

    Raises RunNotFoundError, RefusedError for a server the run can't restart, LaunchError when it doesn't come back.
    """
    from nemo_gym.launch.errors import LaunchError
    from nemo_gym.launch.run_directory import the_run
    from nemo_gym.launch.run_files import CONTROL_SOCKET_NAME
    from nemo_gym.serve.control_socket import NoAnswerError, ask

    info = the_run(chosen_port(overrides), command=f"gym env restart {name or 'NAME'}")
    if not name:
        raise UsageError(f"missing NAME: this run has {', '.join(info.logs)}.")
    before = ask(info.directory, CONTROL_SOCKET_NAME, "restart", server=name, seconds=5.0)["processes"]
    deadline = time.monotonic() + RESTART_SECONDS
    while True:
        try:
            told = ask(info.directory, CONTROL_SOCKET_NAME, "servers", seconds=5.0)["processes"]
        except NoAnswerError as error:
            if not info.is_alive:
                raise LaunchError(f"The run ended while {name} was started anew: see its own output.") from error
            raise
        now = {process["process"]: process["pid"] for process in told if process["state"] == "running"}
        if all(process in now and now[process] != pid for process, pid in before.items()):
            print(f"Restarted {name}: pid {', '.join(f'{pid} is now {now[key]}' for key, pid in before.items())}.")
            return
        if time.monotonic() > deadline:
            raise LaunchError(f"{name} doesn't serve again after {RESTART_SECONDS:g} s: see `gym env logs {name}`.")
        time.sleep(_LOOK_SECONDS)


def _watch(info: "RunInfo", *, as_json: bool) -> None:
    from nemo_gym.launch.inspection import inspect
    from nemo_gym.launch.run_directory import read_run

    is_screen = sys.stdout.isatty() and not as_json
    try:
        with _other_screen() if is_screen else nullcontext():
            while info.is_alive:
                info = read_run(info.directory) or info  # its servers change when they are started again
                text = _text(inspect(info), as_json=as_json)
                sys.stdout.write(_as_screen(text) if is_screen else text + "\n")
                sys.stdout.flush()
                time.sleep(WATCH_SECONDS)
    except KeyboardInterrupt:
        raise SystemExit(0) from None
    print("The run has ended.", file=sys.stderr)


@contextmanager
def _other_screen() -> Iterator[None]:
    """Inside, a terminal shows a screen of its own; afterwards it is as it was, with what had scrolled by."""
    sys.stdout.write(_OTHER_SCREEN)
    try:
        yield
    finally:
        sys.stdout.write(_OWN_SCREEN)
        sys.stdout.flush()


def _as_screen(text: str) -> str:
    """What replaces the terminal's content by the text, as far as that fits."""
    lines = text.splitlines()[: max(1, shutil.get_terminal_size().lines - 1)]
    return _HOME + "".join(f"{line}{_END_OF_LINE}\n" for line in lines) + _REST_OF_SCREEN


def _text(view: "RunView", *, as_json: bool) -> str:
    return json.dumps(view.as_json()) if as_json else view_text(view, shutil.get_terminal_size().columns)


def view_text(view: "RunView", width: int) -> str:
    """The view for a person: what is wrong first, then servers, then rollouts, in lines of at most `width`."""
    up = "" if view.uptime_s is None else f", up {_time(view.uptime_s)}"
    run, command = f"Run at port {view.port} (pid {view.pid}{up})", printable(view.command)
    fits = len(run) + len(command) + 2 <= width
    lines = [f"{run}: {command}"] if fits else _wrapped(run, width)
    for finding in view.findings:
        lines += _wrapped(finding, width)
    lines += [] if fits else _wrapped(f"Its command: {command}", width)
    lines += ["", *table_lines(_SERVER_COLUMNS, [_server_row(server) for server in view.servers], width)]
    lines += ["", *(_collector_line(collector) for collector in view.collectors)]
    if view.stages:
        lines.append("In flight: " + ", ".join(f"{count} {stage}" for stage, count in view.stages.items()))
    if view.rollouts:
        lines += table_lines(_ROLLOUT_COLUMNS, [_rollout_row(rollout) for rollout in view.rollouts], width)
    under_way = sum(count for stage, count in view.stages.items() if stage != "queued")
    if under_way > len(view.rollouts) > 0:
        lines.append(f"… and {under_way - len(view.rollouts)} more")
    return "\n".join(lines).rstrip()


def _wrapped(text: str, width: int) -> list[str]:
    """The whole text in lines of a terminal, those after the first set in; a path stays whole, to be copied."""
    return textwrap.wrap(
        printable(text), max(width, 20), subsequent_indent="  ", break_on_hyphens=False, break_long_words=False
    )


def _server_row(server: "ServerView") -> list[str]:
    state = "no answer" if server.answers is False and server.state in ("running", "unknown") else server.state
    return [
        server.name,
        f"{server.server_type}/{server.implementation}",
        _shown(server.pid),
        "own" if server.processes == [server.name] else ", ".join(server.processes),
        state,
        str(server.restarts),
        _time(server.uptime_s),
        _time(server.cpu_s),
        "-" if server.memory_bytes is None else f"{server.memory_bytes / (1 << 20):.0f}M",
        _shown(server.sessions),
        _shown(server.served),
        _shown(server.in_flight),
        _time(server.oldest_s),
    ]


def _collector_line(collector: "CollectorView") -> str:
    of_all = "" if collector.planned is None else f" of {collector.planned}"
    counts = f"{collector.done}{of_all} done, {collector.failed} failed, {collector.retries} retried"
    admission = collector.admission or {}
    inside, limit = admission.get("in_flight", 0), admission.get("limit")
    bound = f"{inside} running" if limit is None else f"{inside} running of at most {limit}"
    left = admission.get("waiting", 0)
    if collector.planned is not None:
        begun = sum(count for state, count in collector.states.items() if state != "queued")
        left = collector.planned - collector.done - collector.failed - begun
    waiting = f", {left} waiting for their turn" if left > 0 else ""
    return f"Collector (pid {collector.pid}): {counts}, {collector.per_second:g}/s; {bound}{waiting}"


def _rollout_row(rollout: "RolloutView") -> list[str]:
    return [
        rollout.rollout,
        rollout.stage,
        _time(rollout.stage_s),
        _time(rollout.age_s),
        str(rollout.retries),
        rollout.server,
        rollout.detail,
    ]


def _shown(value: int | None) -> str:
    return "-" if value is None else str(value)


def _time(seconds: float | None) -> str:
    """`0.4s`, `12s`, `5m12s`, `2h05m`, `3d02h`."""
    if seconds is None:
        return "-"
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}m{rest:02d}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours < 24 else f"{hours // 24}d{hours % 24:02d}h"
