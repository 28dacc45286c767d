"""Work in processes that may be killed: nothing of it reaches the process that asked but the answer."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from nemo_gym.verifiers import worker_pool
from nemo_gym.verifiers.worker_pool import (
    Library,
    WorkerCrashError,
    WorkerError,
    WorkerPool,
    WorkerPoolFullError,
    WorkerTimeoutError,
)
from tests.unit.verifiers import work


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    pool = WorkerPool(max_workers=2)
    yield pool
    pool.close()


_others: set[int] = set()


@pytest.fixture(autouse=True)
def workers_of_other_tests() -> Iterator[None]:
    """Servers of other tests may still have theirs."""
    _others.update(child.pid for child in children())
    yield
    _others.clear()


def children() -> list[psutil.Process]:
    """The workers this test has started, living or not buried."""
    found = [child for child in psutil.Process().children() if child.pid not in _others]
    return [child for child in found if child.status() == psutil.STATUS_ZOMBIE or _is_worker(child)]


def _is_worker(process: psutil.Process) -> bool:
    return any(word.endswith("worker_process.py") for word in process.cmdline())


async def eventually(condition: Callable[[], Any]) -> Any:
    """What a condition gives once it gives something; the test's own timeout ends it otherwise."""
    async with asyncio.timeout(30):
        while not (found := condition()):
            await asyncio.sleep(0.005)
        return found


async def test_a_function_is_called_elsewhere_and_its_value_comes_back(pool: WorkerPool) -> None:
    assert await pool.run(work.add, 2, right=3) == 5
    assert await pool.run(work.pid) != os.getpid()


async def test_a_library_is_imported_by_the_worker_before_the_clock_runs(
    pool: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_to_import.py").write_text("import time\ntime.sleep(0.5)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert await pool.run(work.name_of, Library("slow_to_import"), timeout=0.4) == "slow_to_import"
    assert "slow_to_import" not in sys.modules
    with pytest.raises(WorkerError, match="no_such_library"):
        await pool.run(work.name_of, Library("no_such_library"))


async def test_what_it_raises_is_raised_here(pool: WorkerPool) -> None:
    with pytest.raises(LookupError, match="no such answer") as caught:
        await pool.run(work.fail, "no such answer")
    assert "work.py" in caught.value.__notes__[0]
    with pytest.raises(WorkerError, match="Odd"):
        await pool.run(work.fail_oddly)
    with pytest.raises(WorkerError, match="can't be sent back"):
        await pool.run(work.unpicklable)
    with pytest.raises(WorkerError, match="can't be called in a process of its own"):
        await pool.run(lambda: None)


async def test_workers_are_started_when_needed_and_kept(pool: WorkerPool) -> None:
    assert pool.snapshot()["workers"] == 0
    assert len({await pool.run(work.pid) for _ in range(5)}) == 1
    pids = await asyncio.gather(*(pool.run(work.pid) for _ in range(20)))
    assert len(set(pids)) <= 2
    assert pool.snapshot()["workers"] == len(children()) <= 2


async def test_work_that_hangs_is_killed_and_its_worker_replaced(pool: WorkerPool) -> None:
    """B35: the deadline holds although the work never lets go of its interpreter."""
    with pytest.raises(WorkerTimeoutError, match=r"spin took more than 0\.2 s") as caught:
        await pool.run(work.spin, timeout=0.2)
    assert caught.value.failure_kind == "verifier_error"
    assert await pool.run(work.add, 1) == 1
    assert pool.snapshot()["killed"] == 1


async def test_the_loop_goes_on_while_workers_are_busy(pool: WorkerPool) -> None:
    """B35: other requests are answered while scores are computed."""
    hung = [asyncio.create_task(pool.run(work.spin, timeout=30)) for _ in range(2)]
    await eventually(lambda: pool.snapshot()["busy"] == 2)
    waiting = asyncio.create_task(pool.run(work.add, 1))
    await eventually(lambda: pool.snapshot()["waiting"] == 1)
    for task in hung:
        task.cancel()
    assert await waiting == 1
    assert [result for result in await asyncio.gather(*hung, return_exceptions=True) if result is None] == []


async def test_a_call_does_not_wait_for_one_that_is_just_beginning(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B35: while there could be another worker, nobody stands behind work that may hang."""
    taken, may_begin, began = threading.Event(), threading.Event(), worker_pool._Crew._began

    def begin_late(crew: worker_pool._Crew) -> None:
        taken.set()
        may_begin.wait(30)
        began(crew)

    monkeypatch.setattr(worker_pool._Crew, "_began", begin_late)
    first = asyncio.create_task(pool.run(work.add, 1))
    assert await asyncio.to_thread(taken.wait, 30)
    second = asyncio.create_task(pool.run(work.add, 2))
    await asyncio.sleep(0)
    assert len(pool._crew._threads) == 2
    may_begin.set()
    assert list(await asyncio.gather(first, second)) == [1, 2]


async def test_a_process_that_ends_is_a_crash_and_the_next_call_works(pool: WorkerPool) -> None:
    with pytest.raises(WorkerCrashError, match="ended with code 7"):
        await pool.run(work.end, 7)
    assert await pool.run(work.add, 4) == 4


async def test_a_caller_who_gives_up_ends_the_work_and_what_it_started(pool: WorkerPool, tmp_path: Path) -> None:
    """B40, B48: a disconnected client leaves no process behind, no grandchild either."""
    told = tmp_path / "pid"
    task = asyncio.create_task(pool.run(work.spin_with_child, str(told)))
    pid = int(await eventually(lambda: told.exists() and told.read_text()))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


async def test_memory_is_bounded() -> None:
    pool = WorkerPool(max_workers=1, memory_bytes=1 << 30)
    try:
        assert await pool.run(work.hog, 1 << 20) == 1 << 20
        with pytest.raises(MemoryError):
            await pool.run(work.hog, 2 << 30)
        assert await pool.run(work.add, 1) == 1
    finally:
        pool.close()


async def test_the_queue_is_bounded() -> None:
    pool = WorkerPool(max_workers=1, max_waiting=2)
    try:
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(pool.run(work.spin, timeout=30))]
        await eventually(lambda: pool.snapshot()["busy"] == 1)
        tasks += [asyncio.create_task(pool.run(work.add, 1)) for _ in range(2)]
        await eventually(lambda: pool.snapshot()["waiting"] == 2)
        with pytest.raises(WorkerPoolFullError):
            await pool.run(work.add, 1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        pool.close()


async def test_workers_inherit_nothing_they_have_no_use_for(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """B103: neither keys nor sockets of the server reach the code that scores."""
    monkeypatch.setenv("POLICY_API_KEY", "canary-in-the-environment")
    monkeypatch.setenv("NEMO_GYM_RUN_MARKER_0123", "1")
    with socket.create_server(("127.0.0.1", 0)) as server:
        os.set_inheritable(server.fileno(), True)
        had = await pool.run(work.inheritance)
    assert "canary-in-the-environment" not in had["variables"].values()
    assert "PATH" in had["variables"] and "NEMO_GYM_RUN_MARKER_0123" in had["variables"]
    assert len([name for name in had["descriptors"] if name.startswith("socket:")]) == 1
    assert had["term"] and had["blocked"] == []
    assert had["modules"] == []


async def test_closing_ends_the_workers_and_the_pool_may_be_used_again(pool: WorkerPool) -> None:
    task = asyncio.create_task(pool.run(work.spin))
    await eventually(lambda: pool.snapshot()["busy"] == 1 and children())
    pool.close()
    assert children() == []
    with pytest.raises(WorkerCrashError):
        await task
    assert await pool.run(work.add, 1) == 1


async def test_a_pool_may_serve_several_loops(pool: WorkerPool) -> None:
    assert await pool.run(work.add, 1) == 1
    assert await asyncio.to_thread(asyncio.run, pool.run(work.add, 2)) == 2


async def test_many_calls_of_which_some_time_out_leave_nothing_behind() -> None:
    """B48: processes and zombies do not grow with calls or timeouts (here 60 calls, 20 % of them timing out)."""
    pool = WorkerPool(max_workers=4)
    before = len(children())
    answers = await asyncio.gather(
        *(pool.run(work.nap_or_spin, number, timeout=0.25) for number in range(60)), return_exceptions=True
    )
    assert [a for a in answers if isinstance(a, int)] == [number for number in range(60) if number % 5]
    assert sum(isinstance(answer, WorkerTimeoutError) for answer in answers) == 12
    assert len(children()) - before <= 4
    pool.close()
    assert len(children()) == before


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_workers_end_with_the_process_that_has_the_pool(tmp_path: Path, number: signal.Signals) -> None:
    """B22, B48: also when that process is killed while its workers hang."""
    told = tmp_path / "pid"
    program = (
        "import asyncio, signal, sys\n"
        "from nemo_gym.verifiers.worker_pool import WorkerPool\n"
        "from tests.unit.verifiers import work\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))\n"
        f"asyncio.run(WorkerPool().run(work.announce_and_hold, {str(told)!r}))\n"
    )
    variables = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    process = subprocess.Popen([sys.executable, "-c", program], env=variables)
    pid = int(await eventually(lambda: told.exists() and told.read_text()))
    process.send_signal(number)
    await asyncio.to_thread(process.wait)
    await eventually(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


def test_functions_of_a_program_are_found_in_it(tmp_path: Path) -> None:
    """A component's functions are in `__main__`, which a worker imports without running it."""
    script = tmp_path / "app.py"
    script.write_text(
        "import asyncio\n"
        "from nemo_gym.verifiers.worker_pool import WorkerPool\n"
        "def double(number): return 2 * number\n"
        "print('loaded as', __name__)\n"
        "if __name__ == '__main__':\n"
        "    print(asyncio.run(WorkerPool().run(double, 21)))\n"
    )
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run([sys.executable, script], env=variables, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "42"
    assert "loaded as __mp_main__" in ran.stdout


def test_a_pool_that_outlives_its_modules_ends_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a module holds is deleted when the interpreter ends, after the modules it uses."""
    pool = WorkerPool(1)
    with monkeypatch.context() as ending:
        ending.setattr("nemo_gym.verifiers.worker_pool.os", None)
        pool.__del__()
