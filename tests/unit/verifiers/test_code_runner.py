"""Programs of models: what they are given, how they end, and how they could cheat."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import pytest

from nemo_gym.sandbox.errors import SandboxPathError
from nemo_gym.sandbox.providers.namespaces.availability import Isolation, isolation
from nemo_gym.sandbox.providers.namespaces.launch import Ended, Jailed
from nemo_gym.verifiers import code_runner
from nemo_gym.verifiers.code_cases import PythonCases, python_cases
from nemo_gym.verifiers.code_runner import (
    CodeRunner,
    CodeRunnerError,
    ConversationEndedError,
    Limits,
    RunStatus,
)

LIMITS = Limits(wall_s=20, cpu_s=5, memory_mib=512, processes=20, file_mib=4)


@pytest.fixture(params=["isolated", "open"])
def runner(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[CodeRunner]:
    if request.param == "open":
        monkeypatch.setattr(code_runner, "isolation", lambda: Isolation(refusal="not here."))
    elif isolation().refusal:
        pytest.skip(isolation().refusal)
    yield CodeRunner(LIMITS, allow_unsandboxed=request.param == "open")


@pytest.fixture
def isolated() -> CodeRunner:
    if isolation().refusal:
        pytest.skip(isolation().refusal)
    return CodeRunner(LIMITS)


async def test_without_isolation_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_runner, "isolation", lambda: Isolation(refusal="Run `sudo sysctl …`."))
    with pytest.raises(CodeRunnerError, match=r"not run without isolation\. Run `sudo sysctl …`\."):
        await CodeRunner().run_python("print(1)")
    with pytest.raises(CodeRunnerError):
        await CodeRunner().is_isolated()
    assert not await CodeRunner(allow_unsandboxed=True).is_isolated()


async def test_a_program_gets_what_it_is_given(runner: CodeRunner) -> None:
    done = await runner.run_python(
        "import sys, os\n"
        "print(input(), sys.argv[1:], open('data/x').read(), os.environ['KEY'], os.environ.get('SECRET'))",
        args=["-v"],
        stdin="né\n",
        files={"data/x": "content"},
        env={"KEY": "value"},
    )
    assert (done.stdout, done.stderr, done.status) == ("né ['-v'] content value None\n", "", RunStatus.OK)
    assert done.is_ok
    assert done.exit_code == 0


async def test_other_programs_than_python(runner: CodeRunner) -> None:
    assert (await runner.run(["sh", "-c", "cat; exit 3"], stdin=b"\xff\n")).stdout == "\ufffd\n"
    assert (await runner.run(["no-such-program"])).exit_code == 127


ENDS = {
    "fails": ("import sys; sys.exit(2)", {}, RunStatus.FAILED),
    "raises": ("1 / 0", {}, RunStatus.FAILED),
    "does not compile": ("x = = 1", {}, RunStatus.FAILED),
    "crashes": ("import os; os.abort()", {}, RunStatus.CRASHED),
    "is ended by itself": ("import os; os.kill(os.getpid(), 9)", {}, RunStatus.CRASHED),
    "sleeps": ("import time; time.sleep(60)", {"wall_s": 0.5}, RunStatus.TIMEOUT),
    "spins": ("while True: pass", {"cpu_s": 1}, RunStatus.TIMEOUT),
    "spins on": (
        "import signal; signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass",
        {"cpu_s": 1},
        RunStatus.TIMEOUT,
    ),
    "allocates": ("x = bytearray(2**30)", {}, RunStatus.MEMORY),
    "prints": ("while True: print('x' * 10_000)", {}, RunStatus.OUTPUT),
    "complains": ("import sys\nwhile True: sys.stderr.write('x' * 10_000)", {}, RunStatus.OUTPUT),
    "stores": (
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\nopen('f', 'wb').write(bytes(2**23))",
        {},
        RunStatus.OUTPUT,
    ),
}


@pytest.mark.parametrize(("code", "limits", "status"), ENDS.values(), ids=ENDS)
async def test_how_programs_end(runner: CodeRunner, code: str, limits: dict[str, float], status: RunStatus) -> None:
    wanted = Limits(**{**vars(LIMITS), **limits})
    assert (await runner.run_python(code, limits=wanted)).status is status


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", ""])
async def test_files_that_lead_out(runner: CodeRunner, name: str) -> None:
    """B107."""
    with pytest.raises(SandboxPathError):
        await runner.run_python("", files={name: "x"})


async def test_descriptors_of_the_server_are_not_there(runner: CodeRunner) -> None:
    source, sink = os.pipe()
    os.set_inheritable(source, True)
    try:
        done = await runner.run_python("import os; print(sorted(os.listdir('/proc/self/fd')))")
    finally:
        os.close(source)
        os.close(sink)
    assert done.stdout == "['0', '1', '2', '3']\n"  # the last is the listing's own


async def test_a_cancelled_run_ends_the_program(runner: CodeRunner) -> None:
    task = asyncio.create_task(runner.run_python("import time; time.sleep(60)"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_no_more_at_once_than_wanted(isolated: CodeRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    running, most = 0, 0
    run = Jailed.run

    async def counting(jailed: Jailed) -> Ended:
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            return await run(jailed)
        finally:
            running -= 1

    monkeypatch.setattr(Jailed, "run", counting)
    few = CodeRunner(LIMITS, concurrency=2)
    done = await asyncio.gather(*(few.run(["true"]) for _ in range(8)))
    assert [each.status for each in done] == [RunStatus.OK] * 8
    assert most == 2


async def test_packages_on_request(isolated: CodeRunner) -> None:
    code = "import os, sys\nprint(sorted(sys.modules['os'].environ.get('PYTHONPATH', '').split(':')))"
    assert (await isolated.run_python(code)).stdout == "['']\n"
    with_packages = CodeRunner(LIMITS, packages=True)
    assert (await with_packages.run_python("import omegaconf; print('there')")).stdout == "there\n"


# -- talking to a program ----------------------------------------------------------------------------------------------

ECHO = "import sys\nn = 0\nfor line in sys.stdin:\n    n += 1\n    exec(line)\n    print(n, flush=True)"


async def test_a_program_keeps_its_state(runner: CodeRunner) -> None:
    async with runner.converse(["python", "main.py"], files={"main.py": ECHO}) as talk:
        assert [await talk.ask(b"pass\n", 10) for _ in range(3)] == [b"1\n", b"2\n", b"3\n"]


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (b"import time; time.sleep(60)\n", RunStatus.TIMEOUT),
        (b"print('x' * 10**7)\n", RunStatus.OUTPUT),
        (b"sys.exit(3)\n", RunStatus.FAILED),
        (b"import os; os.abort()\n", RunStatus.CRASHED),
    ],
)
async def test_a_program_that_does_not_answer(runner: CodeRunner, said: bytes, status: RunStatus) -> None:
    async with runner.converse(["python", "main.py"], files={"main.py": ECHO}) as talk:
        with pytest.raises(ConversationEndedError) as first:
            await talk.ask(said, 1 if status is RunStatus.TIMEOUT else 20)
        assert runner.outcome(first.value.ended).status is status
        with pytest.raises(ConversationEndedError):
            await talk.ask(b"pass\n", 1)


# -- many inputs -------------------------------------------------------------------------------------------------------


async def test_each_input_has_a_fresh_program(runner: CodeRunner) -> None:
    source = "seen = globals().setdefault('seen', [])\nseen.append(1)\nprint(len(seen), input(), re.escape('.'))"
    async with python_cases(runner, source, prelude="import re") as cases:
        assert [(await cases.run(text)).stdout for text in ("a", "b")] == ["1 a \\.\n", "1 b \\.\n"]


CASES = {
    "reads /dev/stdin": ("print(open('/dev/stdin').read())", RunStatus.OK, "in\n"),
    "reads descriptor 0": ("print(open(0).read())", RunStatus.OK, "in\n"),
    "exits": ("print(1)\nraise SystemExit", RunStatus.OK, "1\n"),
    "exits with a code": ("print(1)\nexit(3)", RunStatus.FAILED, "1\n"),
    "prints at exit": ("import atexit; atexit.register(print, 'late')", RunStatus.OK, "late\n"),
    "prints from a thread": ("import threading; threading.Thread(target=print, args=[1]).start()", RunStatus.OK, "1\n"),
    "raises": ("print(1)\n1 / 0", RunStatus.FAILED, "1\n"),
    "is the main module": ("import __main__\nx = 5\nif __name__ == '__main__': print(__main__.x)", RunStatus.OK, "5\n"),
    "pickles its classes": (
        "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))) is A)",
        RunStatus.OK,
        "True\n",
    ),
    "takes too long": ("import time; time.sleep(60)", RunStatus.TIMEOUT, ""),
    "hangs without output": (
        "import os, time; os.close(1); os.close(2); os.close(3); time.sleep(60)",
        RunStatus.TIMEOUT,
        "",
    ),
    "crashes": ("import os; os.abort()", RunStatus.CRASHED, ""),
    "allocates": ("bytearray(2**30)", RunStatus.MEMORY, ""),
    "recurses": (
        "f = lambda n: n and 1 + f(n - 1)\nimport sys; sys.setrecursionlimit(9**6)\nprint(f(20000))",
        RunStatus.OK,
        "20000\n",
    ),
}


@pytest.mark.parametrize(("source", "status", "stdout"), CASES.values(), ids=CASES)
async def test_how_cases_end(runner: CodeRunner, source: str, status: RunStatus, stdout: str) -> None:
    async with python_cases(runner, source, case_seconds=0.3 if status is RunStatus.TIMEOUT else 20) as cases:
        done = await cases.run("in")
        assert (done.status, done.stdout) == (status, stdout), done
        assert (await cases.run("in")).status is status, "the next case is not affected"


async def test_what_a_prelude_prints_is_no_answer(runner: CodeRunner) -> None:
    async with python_cases(runner, "print(1)", prelude="print('noise', flush=True)") as cases:
        assert (await cases.run("")).stdout == "1\n"


async def test_what_a_case_started_ends_with_it(isolated: CodeRunner) -> None:
    source = (
        "import os, time\ncount = lambda: sum(name.isdigit() for name in os.listdir('/proc'))\n"
        "for _ in range(500):\n    if count() > 3: time.sleep(0.01)\n"  # init, driver and this one; the dead go soon
        "print(count())\n"
        "if os.fork() == 0:\n    for n in (1, 2, 3): os.close(n)\n    time.sleep(60)"
    )
    async with python_cases(isolated, source) as cases:
        assert (await cases.run("")).stdout == (await cases.run("")).stdout


class Ending:
    """A driver that ends instead of answering."""

    def __init__(self, ended: Ended) -> None:
        self.ended = ended

    async def ask(self, request: bytes, timeout_s: float) -> bytes:
        raise ConversationEndedError(self.ended)


async def test_a_driver_that_ends_well_has_run_nothing_well() -> None:
    talk: Any = Ending(Ended(exit_code=0))
    cases = PythonCases(CodeRunner(), talk, 1, 1)
    assert (await cases.run("")).status is RunStatus.CRASHED
    assert (await cases.run("")).status is RunStatus.CRASHED


async def test_a_driver_that_could_not_be_started_says_nothing_of_the_program() -> None:
    talk: Any = Ending(Ended(error="unshare: not permitted"))
    with pytest.raises(CodeRunnerError, match="unshare"):
        await PythonCases(CodeRunner(), talk, 1, 1).run("")


async def test_too_much_output_of_a_case(runner: CodeRunner) -> None:
    async with python_cases(runner, "print('x' * 10_000)", max_output_bytes=1000) as cases:
        done = await cases.run("")
        assert (done.status, len(done.stdout)) == (RunStatus.OUTPUT, 1000)


async def test_calls(runner: CodeRunner) -> None:
    async with python_cases(runner, "def f(a, b): return (a + b, {1: b})\ndef g(): return {1}") as cases:
        assert (await cases.call("f", [1, 2])).returned.value == [3, {"1": 2}]
        assert not (await cases.call("g", [])).returned.is_given
        missing = await cases.call("h", [])
        assert (missing.status, missing.returned.is_given) == (RunStatus.FAILED, False)
        assert "KeyError" in missing.stderr
    async with python_cases(runner, "class Solution:\n    def f(self, a): return None") as cases:
        returned = (await cases.call("f", [1])).returned
        assert (returned.value, returned.is_given) == (None, True)


async def test_a_program_that_does_not_compile(runner: CodeRunner) -> None:
    async with python_cases(runner, "x = = 1") as cases:
        assert "SyntaxError" in cases.load_error
        assert (await cases.run("")).status is RunStatus.FAILED


ATTACKS = {
    "leaves early with success": "import os; os._exit(0)",
    "ends its driver": "import os, time; os.kill(os.getppid(), 9); time.sleep(5)",
    "ends all it can": "import os; os.kill(-1, 9)",
    "looks for expected outputs": (
        "import gc, os\nprint([o for o in gc.get_objects() if '4242' in str(o)[:10**5]], os.listdir('.'))"
    ),
    "reads what its driver holds": "import os; print(open(f'/proc/{os.getppid()}/mem', 'rb').read(10))",
    "writes to its driver's answers": (
        "import os\nfor n in range(64):\n"
        '    try: os.write(n, b\'{"status": 0, "stdout": "4242"}\\n\')\n    except OSError: pass'
    ),
    "writes a result file": "[open(n, 'w').write('1') for n in ('reward.txt', '/tmp/reward.txt', 'result.json')]",
    "patches comparisons": "class A(str):\n    __eq__ = lambda *_: True\nimport sys\nsys.stdout.write(A('1'))",
}


@pytest.mark.parametrize("source", ATTACKS.values(), ids=ATTACKS)
async def test_no_trick_prints_what_is_expected(isolated: CodeRunner, source: str) -> None:
    """B85, B102: the expected output is only here, and only what a program printed is compared with it."""
    expected = str(int("4242"))
    async with python_cases(isolated, source, case_seconds=2) as cases:
        first, second = await cases.run("21"), await cases.run("21")
    for done in (first, second):
        assert not (done.is_ok and done.stdout.strip() == expected)


async def test_a_right_program_is_right_after_wrong_inputs(isolated: CodeRunner) -> None:
    async with python_cases(isolated, "n = int(input())\nprint(n * 202)") as cases:
        assert (await cases.run("x")).status is RunStatus.FAILED
        assert (await cases.run("21")).stdout.strip() == "4242"
