"""Interpreters that keep their state: what code finds, how it ends, and that one session is nothing to another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import psutil
import pytest

from nemo_gym.sandbox.providers.namespaces.availability import Isolation, isolation
from nemo_gym.verifiers import code_runner
from nemo_gym.verifiers.code_runner import CodeRunner, CodeRunnerError, Limits
from nemo_gym.verifiers.python_session import OUT_OF_TIME, Namespace, PythonSession, Ran

FEW = Namespace(["print", "len", "__import__"], {"np": "numpy", "no": "no_such_module"}, one_namespace=False)
ALL = Namespace(None, {"np": "numpy"})
SMALL = Limits(wall_s=60, cpu_s=20, memory_mib=512, processes=10, disk_mib=8)


@pytest.fixture(params=["isolated", "open"])
def runner(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> CodeRunner:
    if request.param == "open":
        monkeypatch.setattr(code_runner, "isolation", lambda: Isolation(refusal="not here."))
    elif isolation().refusal:
        pytest.skip(isolation().refusal)
    return CodeRunner(packages=True, allow_unsandboxed=request.param == "open")


@pytest.fixture
async def few(runner: CodeRunner) -> AsyncIterator[PythonSession]:
    session = PythonSession(runner, FEW, limits=SMALL)
    yield session
    await session.close()


@pytest.fixture
async def whole(runner: CodeRunner) -> AsyncIterator[PythonSession]:
    session = PythonSession(runner, ALL, limits=SMALL)
    yield session
    await session.close()


async def said(session: PythonSession, *pieces: str, seconds: float = 10) -> list[Ran]:
    return [await session.run(piece, seconds) for piece in pieces]


FEW_CASES = {
    "a value": ("1 + 1", Ran(value="2")),
    "output and value": ("print('a')\nlen('abc')", Ran("a\n", "", "3")),
    "the last line runs twice": ("n = [0]\nn.append(1) or len(n)", Ran(value="3")),
    "an assignment has none": ("x = 1", Ran()),
    "nor has a statement": ("for x in [1]: x", Ran()),
    "nor has print": ("print(7)", Ran("7\n")),
    "nor has a word that begins like a statement": ("iffy = 3\niffy", Ran()),
    "nor has None": ("None", Ran()),
    "nothing": ("", Ran()),
    "few builtins": ("sorted([1])", Ran(error="name 'sorted' is not defined")),
    "functions see no later names": ("x = 1\ndef f():\n    return x\nf()", Ran(error="name 'x' is not defined")),
    "but libraries": ("def f():\n    return np.array([3])[0]\nf()", Ran(value="3")),
    "imports": ("import math\nmath.floor(2.5)", Ran(value="2")),
    "a library that isn't there": ("no", Ran(error="name 'no' is not defined")),
    "an error leaves nothing else": ("print('a')\n1 / 0", Ran(error="division by zero")),
    "an error without a text": ("assert not 1", Ran(error="AssertionError")),
    "no Python": ("1 +", Ran(error="invalid syntax (<code>, line 1)")),
    "an exit": ("import sys\nsys.exit('bye')", Ran(error="bye")),
    "stderr": ("import sys\nprint('e', file=sys.stderr)", Ran("", "e\n")),
    "a null": ("'\x00'", Ran(error="source code string cannot contain null bytes")),
    "half a character": ("print('\\udfff')", Ran("?\n")),
    "other scripts": ("print('\u00e9\u4e16\U0001d7dc')", Ran("\u00e9\u4e16\U0001d7dc\n")),
    "what is printed past it": ("import os\nprint(os.write(1, b'{}'))", Ran("2\n")),
    "no input": ("import sys\nsys.stdin.read()", Ran(value="")),
}


@pytest.mark.parametrize("name", FEW_CASES)
async def test_pieces_with_few_builtins(few: PythonSession, name: str) -> None:
    code, expected = FEW_CASES[name]
    assert await few.run(code, 10) == expected


ALL_CASES = {
    "functions see all names": ("x = 2\ndef f(n):\n    return x if n == 0 else f(n - 1)\nf(3)", Ran(value="2")),
    "the last line runs once": ("n = [0]\nn.append(1) or len(n)", Ran(value="2")),
    "a last expression of several lines": ("sorted(\n    [2, 1]\n)", Ran(value="[1, 2]")),
    "classes": ("class A:\n    x = 1\nA().x", Ran(value="1")),
    "is the main module": ("__name__", Ran(value="__main__")),
}


@pytest.mark.parametrize("name", ALL_CASES)
async def test_pieces_with_all_of_python(whole: PythonSession, name: str) -> None:
    code, expected = ALL_CASES[name]
    assert await whole.run(code, 10) == expected


async def test_state_stays_also_after_errors_and_time_outs(few: PythonSession) -> None:
    spent = await said(few, "x = [1]", "1 / 0", "while 1: pass", "x.append(2)\nx", seconds=0.5)
    assert [ran.error for ran in spent] == [None, "division by zero", OUT_OF_TIME, None]
    assert spent[-1].value == "[1, 2]"


async def test_time_can_not_be_caught(whole: PythonSession) -> None:
    """It is no Exception, and what swallows everything is told again."""
    swallowing = "while 1:\n    try:\n        while 1: len([])\n    except {}:\n        pass"
    for code in (
        "import time\ntry:\n    time.sleep(9)\nexcept Exception:\n    pass",
        swallowing.format(""),
        swallowing.format("Exception"),
    ):
        [ran] = await said(whole, code, seconds=0.3)
        assert (ran.error or "").startswith(OUT_OF_TIME)


FORGERY = "import os\nfor n in range(3, 20):\n    try:\n        os.write(n, {})\n    except OSError:\n        pass"
ENDS = {
    "an exit past it": ("import os\nos._exit(0)", "the interpreter ended"),
    "a crash": ("import os\nos.abort()", "the interpreter ended"),
    "no end in C": ("9 ** 9 ** 9 ** 9", OUT_OF_TIME),
    "forged answers": (FORGERY.format("b'[' * 100000 + b'\\n'"), "the code wrote where"),
    "forged words": (FORGERY.format("b'zz\\n'"), "the code wrote where"),
}


@pytest.mark.parametrize("name", ENDS)
async def test_an_interpreter_that_ended_is_begun_again(whole: PythonSession, name: str) -> None:
    code, why = ENDS[name]
    ended, after = await said(whole, code, "1 + 1", seconds=1)
    assert why in (ended.error or ""), ended
    assert after == Ran(value="2")


async def test_output_is_cut(runner: CodeRunner) -> None:
    session = PythonSession(runner, ALL, max_characters=10)
    printed, value, error = await said(session, "print('a' * 99)", "'b' * 99", "raise ValueError('c' * 99)")
    assert (printed.stdout, value.value, error.error) == ("a" * 10, "b" * 10, "c" * 10)
    await session.close()


async def test_memory_is_bounded(whole: PythonSession) -> None:
    [ran] = await said(whole, "x = bytearray(10 ** 10)")
    assert ran.error in ("MemoryError", "out of memory; the interpreter was restarted, and what was defined is gone")


async def test_sessions_are_nothing_to_each_other(runner: CodeRunner) -> None:
    if not await runner.is_isolated():
        pytest.skip("without isolation they have one file system")
    one, two = PythonSession(runner, ALL), PythonSession(runner, ALL)
    await said(one, "x = 1\nopen('/tmp/seen', 'w').write('x')")
    [name], [file] = await asyncio.gather(said(two, "x"), said(two, "open('/tmp/seen').read()"))
    assert name.error == "name 'x' is not defined"
    assert "No such file" in (file.error or "")
    assert (await one.run("open('/tmp/seen').read()", 10)).value == "x"
    for session in (one, two):
        await session.close()


async def test_pieces_of_one_session_run_in_turn(few: PythonSession) -> None:
    await few.run("x = []", 10)
    await asyncio.gather(*(few.run(f"x.append({n})", 10) for n in range(5)))
    assert (await few.run("x", 10)).value == "[0, 0, 1, 1, 2, 2, 3, 3, 4, 4]"


async def test_closing_ends_what_runs(few: PythonSession) -> None:
    await few.run("x = 1", 10)
    assert few.has_begun
    running = asyncio.create_task(few.run("while 1: pass", 60))
    await asyncio.sleep(0)
    await few.close()
    assert (await running).error == "the session was closed"
    assert (await few.run("x", 10)).error == "name 'x' is not defined"


async def test_a_caller_that_gives_up_ends_the_interpreter(few: PythonSession) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(few.run("while 1: pass", 60), 0.5)
    assert not few.has_begun
    assert (await few.run("2", 10)).value == "2"


async def test_without_isolation_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_runner, "isolation", lambda: Isolation(refusal="not here."))
    with pytest.raises(CodeRunnerError, match=r"not here\."):
        await PythonSession(CodeRunner()).run("1", 1)


def test_an_interpreter_ends_with_its_event_loop() -> None:
    if isolation().refusal:
        pytest.skip(isolation().refusal)

    async def begin() -> None:
        assert (await PythonSession(CodeRunner(), ALL).run("1", 10)).value == "1"
        assert len(psutil.Process().children()) > before

    before = len(psutil.Process().children())
    asyncio.run(begin())
    assert len(psutil.Process().children()) == before
