"""From a fork of the fork server to a server of its own: what the process must shed, and what it must be told."""

from __future__ import annotations

import builtins
import contextlib
import gc
import importlib
import os
import signal
import site
import sys
import types
from pathlib import Path
from typing import NoReturn

from nemo_gym.config.handover import LISTEN_FD_ENV, READY_FD_ENV
from nemo_gym.launch.linux import die_with_parent, name_process
from nemo_gym.launch.messages import SpawnRequest
from nemo_gym.serve.log_streams import print_to_log

_FD_VARIABLES = {"listen": LISTEN_FD_ENV, "ready": READY_FD_ENV}
_RESET_SIGNALS = (signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2)
_EXIT_ON_TERM = 128 + signal.SIGTERM
_CANNOT_EXEC = 127


def start_own_life(parent: int) -> None:
    """Own process group, default signals, death with the parent. Called first thing after the fork."""
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    die_with_parent()
    if os.getppid() != parent:
        os._exit(1)
    signal.set_wakeup_fd(-1)
    for number in _RESET_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _exit_on_term)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def become(request: SpawnRequest, fds: list[int]) -> None:
    """Turn this process into the requested server; returns when a forked server's main program has ended.

    The caller then lets the interpreter end, so that exit handlers run.
    """
    name_process(request.name)
    passed: dict[str, list[int]] = {}
    for role, fd in zip(request.roles, fds, strict=True):
        passed.setdefault(role, []).append(fd)
    _set_streams(*passed.pop("log"))
    _set_environment(request, passed)
    os.chdir(request.directory)
    if request.mode == "exec":
        _exec(request, [fd for fds in passed.values() for fd in fds])
    _take_venv(request)
    gc.enable()
    _run_as_main(request.entrypoint)


def _exit_on_term(*_: object) -> NoReturn:
    """As an exit, not a kill, so that `atexit` runs; uvicorn re-raises the signal to this handler when it is done."""
    raise SystemExit(_EXIT_ON_TERM)


def _set_streams(log: int) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(null)
    os.close(log)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    print_to_log()


def _set_environment(request: SpawnRequest, passed: dict[str, list[int]]) -> None:
    for name in (*request.unset, *_FD_VARIABLES.values()):
        os.environ.pop(name, None)
    os.environ.update(request.environment)
    for role, fds in passed.items():
        os.environ[_FD_VARIABLES[role]] = ",".join(map(str, fds))


def _exec(request: SpawnRequest, inherited: list[int]) -> NoReturn:
    for fd in inherited:
        os.set_inheritable(fd, True)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    os.environ.setdefault("PYTHONUNBUFFERED", "1")  # its log is a file, which Python would write in blocks
    try:
        os.execve(request.python, [request.python, request.entrypoint], os.environ)
    except OSError as error:
        print(f"{request.python} can't be run: {error.strerror}.", file=sys.stderr)
        os._exit(_CANNOT_EXEC)


def _take_venv(request: SpawnRequest) -> None:
    """Make this interpreter look as if the venv's had started it."""
    sys.executable = request.python
    sys.prefix = sys.exec_prefix = request.prefix
    _forget_sysconfig()
    added = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    below = [request.directory, *(str(Path(entry).absolute()) for entry in added)]
    inherited = list(sys.path)
    sys.path[:] = list(dict.fromkeys([*below, *_standard_library()]))
    site.addsitedir(request.site_packages)
    sys.path += [entry for entry in inherited if entry not in sys.path]
    importlib.invalidate_caches()


def _standard_library() -> list[str]:
    """The interpreter's own entries, which come before any site-packages."""
    home = Path(os.__file__).parent
    own = {
        str(home),
        str(home / "lib-dynload"),
        str(home.parent / f"python{sys.version_info[0]}{sys.version_info[1]}.zip"),
    }
    return [entry for entry in sys.path if entry in own]


def _forget_sysconfig() -> None:
    sysconfig = sys.modules.get("sysconfig")
    if sysconfig is not None:
        fresh: dict[str, object] = {"_CONFIG_VARS": None, "_CONFIG_VARS_INITIALIZED": False}
        fresh |= {"_PREFIX": sys.prefix, "_EXEC_PREFIX": sys.exec_prefix}
        vars(sysconfig).update({name: value for name, value in fresh.items() if hasattr(sysconfig, name)})
    spawn = sys.modules.get("multiprocessing.spawn")
    if spawn is not None:
        spawn.set_executable(sys.executable)


def _run_as_main(entrypoint: str) -> None:
    """Run a file as `__main__`, in a module that outlives the run: exit handlers and pickling look there."""
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=entrypoint, __builtins__=builtins, __cached__=None)
    sys.modules["__main__"] = main
    sys.argv = [entrypoint]
    source = Path(entrypoint).read_bytes()
    exec(compile(source, entrypoint, "exec", dont_inherit=True), main.__dict__)
