"""Processes for work that takes a processor for long, may never end, or may take its process down.

A verifier that parses mathematics or solves puzzles hands that over here, so that its server goes on answering:

    pool = WorkerPool(max_workers=2, memory_bytes=1 << 30)
    score = await pool.run(score_answer, answer, expected, timeout=5)

`score_answer` must be importable (a function at the top of a module), its arguments and its result picklable. Code that
a model wrote needs a sandbox; a worker only keeps time and memory.
"""

from __future__ import annotations

import asyncio
import atexit
import importlib
import os
import pickle
import queue
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, ParamSpec, TypeVar, cast

from nemo_gym.errors import GymError
from nemo_gym.schema.failure_kinds import VERIFIER_ERROR
from nemo_gym.verifiers import worker_process
from nemo_gym.verifiers.worker_process import BEGUN, RAISED, RETURNED, receive, send

P = ParamSpec("P")
T = TypeVar("T")

SECONDS = 60.0
MAX_WAITING = 10_000
START_SECONDS = 60.0
"""A worker has this long to start and to import what a function needs; it doesn't count as the function's time."""

_END_SECONDS = 5.0
_KEPT_VARIABLES = frozenset(
    {"PATH", "HOME", "USER", "LANG", "LANGUAGE", "TZ", "TMPDIR", "PYTHONHASHSEED", "CUDA_VISIBLE_DEVICES"}
)
_KEPT_PREFIXES = ("LC_", "NEMO_GYM_RUN_MARKER_")
_KEPT_SUFFIXES = ("LIBRARY_PATH", "_NUM_THREADS")


class WorkerError(GymError):
    """A call in a worker came to nothing; as a failure it is a `verifier_error`."""

    failure_kind = VERIFIER_ERROR


class WorkerTimeoutError(WorkerError, TimeoutError):
    """The function took longer than it may, and its process was killed."""


class WorkerCrashError(WorkerError, RuntimeError):
    """The process ended under the function."""


class WorkerPoolFullError(WorkerError, RuntimeError):
    """Too many calls wait for a worker already."""


class Library:
    """A module, by its name, as an argument of a call: the worker imports it, before the call's time begins.

    For what is slow to import, and what only the worker needs. The call fails with WorkerError where it isn't there.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __reduce__(self) -> tuple[Callable[[str], ModuleType], tuple[str]]:
        return importlib.import_module, (self._name,)


class WorkerPool:
    """At most `max_workers` processes (by default as many as processors, up to 8), each started when it is needed.

    They inherit no sockets, handlers or locks, and of the environment only what programs need; `environment` is added.
    `memory_bytes` bounds each one's address space: what needs more gets a MemoryError. More than `max_waiting` calls
    without a worker raise WorkerPoolFullError. Workers end with `close`, and with the process that holds the pool.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        *,
        memory_bytes: int | None = None,
        max_waiting: int = MAX_WAITING,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        workers = min(8, os.cpu_count() or 1) if max_workers is None else max_workers
        if workers < 1:
            raise ValueError(f"max_workers is {workers}: there must be at least one worker")
        self._max_workers = workers
        self._max_waiting = max_waiting
        self._settings = _Settings(memory_bytes, dict(environment or {}))
        self._crew = _Crew()
        _pools.add(self)

    async def run(self, function: Callable[P, T], *args: P.args, timeout: float = SECONDS, **named: P.kwargs) -> T:  # type: ignore[valid-type]
        """What the function returns, called in a worker; what it raises is raised here.

        Raises WorkerTimeoutError when it takes longer than `timeout` seconds once it has begun, WorkerCrashError when
        its process ends, WorkerError when call or result can't be sent. A caller that is cancelled ends the work.
        """
        if timeout <= 0:
            raise ValueError(f"timeout is {timeout}: a call needs some time")
        crew = self._own_crew()
        if crew.waiting.qsize() >= self._max_waiting:
            raise WorkerPoolFullError(f"{self._max_waiting} calls wait for a worker already: try again later.")
        loop = asyncio.get_running_loop()
        job = _Job(function, args, named, timeout, loop, loop.create_future())
        crew.take(job, self._max_workers, self._settings)
        try:
            return cast(T, await job.answer)
        finally:
            job.abandon()

    def close(self) -> None:
        """End all workers; what they do is lost. The pool may be used again."""
        crew, self._crew = self._crew, _Crew()
        if crew.pid == os.getpid():
            crew.end()
            crew.join()

    def __del__(self) -> None:
        try:
            if (crew := getattr(self, "_crew", None)) is not None and crew.pid == os.getpid():
                crew.end()
        except AttributeError:  # the interpreter ends: modules are None by now, and `close` ran at exit
            pass

    def snapshot(self) -> dict[str, int]:
        """How many workers there are, how many of them are busy, how many calls wait, and how many were killed."""
        crew = self._crew
        return {
            "workers": len(crew.processes()),
            "busy": crew.busy,
            "waiting": crew.waiting.qsize(),
            "killed": crew.killed,
        }

    def _own_crew(self) -> _Crew:
        """This process's workers: those of a process that was forked from another are not its own."""
        if self._crew.pid != os.getpid():
            self._crew = _Crew()
        return self._crew


_pools: weakref.WeakSet[WorkerPool] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for pool in list(_pools):
        pool.close()


@dataclass(frozen=True)
class _Settings:
    memory_bytes: int | None
    environment: dict[str, str]

    def as_message(self) -> bytes:
        main_path = getattr(sys.modules.get("__main__"), "__file__", None)
        return pickle.dumps(
            {
                "memory_bytes": self.memory_bytes,
                "path": [str(Path(entry).absolute()) for entry in sys.path],
                "main_path": None if main_path is None else str(Path(main_path).absolute()),
            }
        )

    def variables(self) -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if _is_kept(name)} | self.environment


def _is_kept(name: str) -> bool:
    return name in _KEPT_VARIABLES or name.startswith(_KEPT_PREFIXES) or name.endswith(_KEPT_SUFFIXES)


@dataclass(eq=False)
class _Job:
    """One call, from the task that waits for it to the thread that has it made."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    named: Mapping[str, Any]
    timeout: float
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[Any]
    is_over: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _process: _Process | None = None

    def as_message(self) -> bytes:
        try:
            return pickle.dumps((self.function, self.args, dict(self.named)), pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            raise WorkerError(f"{_name(self.function)} can't be called in a process of its own: {error}") from error

    def begins_in(self, process: _Process) -> bool:
        """Whether the job is still wanted, now that there is a process for it."""
        with self._lock:
            self._process = None if self.is_over else process
            return not self.is_over

    def has_left(self) -> None:
        """From now on its process is another job's, and must not be killed for this one."""
        with self._lock:
            self._process = None

    def ends(self, value: Any, error: BaseException | None) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            self.loop.call_soon_threadsafe(self._settle, value, error)

    def abandon(self) -> None:
        """Nobody waits any more: whatever still runs is ended."""
        with self._lock:
            self.is_over = True
            if self._process is not None:
                self._process.kill()

    def _settle(self, value: Any, error: BaseException | None) -> None:
        if self.answer.done():
            return
        if error is None:
            self.answer.set_result(value)
        else:
            self.answer.set_exception(error)


class _Crew:
    """The threads of one process's pool, each with a worker process of its own."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.waiting: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self.busy = self.killed = 0
        self._threads: list[threading.Thread] = []
        self._open = 0
        """Jobs that were taken and have not ended."""
        self._lock = threading.RLock()
        self._processes: set[_Process] = set()
        self._has_ended = False

    def take(self, job: _Job, most: int, settings: _Settings) -> None:
        with self._lock:
            self._open += 1
            if len(self._threads) < min(self._open, most):
                thread = threading.Thread(target=self._work, args=(settings,), name="gym-worker", daemon=True)
                self._threads.append(thread)
                thread.start()
        self.waiting.put(job)

    def processes(self) -> list[_Process]:
        with self._lock:
            return [process for process in self._processes if process.is_alive]

    def end(self) -> None:
        """Kill the processes; the threads bury them and end."""
        with self._lock:
            self._has_ended = True
            threads, processes = list(self._threads), list(self._processes)
        for _ in threads:
            self.waiting.put(None)
        for process in processes:
            process.kill()

    def join(self) -> None:
        """Return when all are buried, after `end`."""
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(_END_SECONDS)

    def _work(self, settings: _Settings) -> None:
        process: _Process | None = None
        while (job := self.waiting.get()) is not None:
            self._began()
            value: Any = None
            problem: BaseException | None = None
            try:
                process = process or self._started(settings)
                value = self._made(job, process)
            except BaseException as error:
                problem = error
            if process is not None and not process.is_alive:
                self._buried(process)
                process = None
            self._ended()
            job.ends(value, problem)
        if process is not None:
            self._buried(process)

    def _began(self) -> None:
        with self._lock:
            self.busy += 1

    def _ended(self) -> None:
        with self._lock:
            self.busy -= 1
            self._open -= 1

    def _made(self, job: _Job, process: _Process) -> Any:
        message = job.as_message()
        if not job.begins_in(process):
            return None
        try:
            return process.call(message, job.timeout, _name(job.function))
        finally:
            job.has_left()
            self.killed += not process.is_alive

    def _started(self, settings: _Settings) -> _Process:
        process = _Process(settings)
        with self._lock:
            self._processes.add(process)
            has_ended = self._has_ended
        if has_ended:
            self._buried(process)
            raise WorkerCrashError("the pool was closed")
        return process

    def _buried(self, process: _Process) -> None:
        process.kill()
        process.bury()
        with self._lock:
            self._processes.discard(process)


class _Process:
    """A worker process and this end of its socket. Made and used by one thread, killed by any."""

    def __init__(self, settings: _Settings) -> None:
        self._sock, theirs = socket.socketpair()
        self.is_alive = True
        with theirs:
            command = [sys.executable, "-I", str(Path(worker_process.__file__)), str(theirs.fileno())]
            self._popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                env=settings.variables(),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        try:
            send(self._sock, settings.as_message())
        except OSError:
            self.kill()

    def call(self, message: bytes, timeout: float, name: str) -> Any:
        """The value of a call; raises what it raised, or WorkerError after the process was killed."""
        try:
            began = self._exchange(message, START_SECONDS, f"{name} could not be imported within {START_SECONDS:g} s")
            answer = self._next(timeout, f"{name} took more than {timeout:g} s") if began == BEGUN else began
        except (EOFError, OSError) as error:
            if isinstance(error, WorkerTimeoutError):
                raise
            raise WorkerCrashError(f"the process that ran {name} {self._how_it_ended()}") from error
        return _value(answer, name)

    def kill(self) -> None:
        """End it and what it started. `bury` takes it off the system's list."""
        if self.is_alive:
            self.is_alive = False
            with suppress(OSError):
                os.killpg(self._popen.pid, signal.SIGKILL)

    def bury(self) -> None:
        self._popen.wait()
        self._sock.close()

    def _exchange(self, message: bytes, timeout: float, complaint: str) -> bytes:
        self._sock.settimeout(timeout)
        try:
            send(self._sock, message)
        except TimeoutError as error:
            self.kill()
            raise WorkerTimeoutError(complaint) from error
        return self._next(timeout, complaint)

    def _next(self, timeout: float, complaint: str) -> bytes:
        self._sock.settimeout(timeout)
        try:
            return receive(self._sock)
        except TimeoutError as error:
            self.kill()
            raise WorkerTimeoutError(complaint) from error

    def _how_it_ended(self) -> str:
        was_alive = self.is_alive
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(1.0)
        self.kill()
        code = self._popen.returncode
        if not was_alive:
            return "was killed"
        return "closed its connection" if code is None else f"ended with code {code}"


def _value(answer: bytes, name: str) -> Any:
    kind, content = answer[:1], answer[1:]
    if kind == RETURNED:
        return pickle.loads(content)
    if kind == RAISED:
        error, text = pickle.loads(content)
        error.add_note(f"In a worker process:\n{text}")
        raise error
    raise WorkerError(f"{name}: {content.decode(errors='replace')}")


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", function))
