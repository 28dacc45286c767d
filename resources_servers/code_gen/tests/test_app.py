from __future__ import annotations

import asyncio
import base64
import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from nemo_gym.config.errors import ConfigError
from nemo_gym.sandbox.providers.namespaces import availability
from nemo_gym.sandbox.providers.namespaces.availability import Isolation
from nemo_gym.testing.responses import reasoning as thought
from nemo_gym.testing.responses import verify_request
from nemo_gym.testing.verdicts import check_example_rollouts, check_example_rows, new_server
from nemo_gym.verifiers import code_cases
from resources_servers.code_gen import checking
from resources_servers.code_gen.app import (
    CompCodingResourcesServer,
    CompCodingVerifyRequest,
    CompCodingVerifyResponse,
)
from resources_servers.code_gen.checking import shortened
from resources_servers.code_gen.comparison import printed_difference, returned_difference
from resources_servers.code_gen.lcb_integration.compute_code_generation_metrics import check_correctness
from resources_servers.code_gen.lcb_integration.testing_util import (
    Capturing,
    MockStdinWithBuffer,
    decimal_lines_match,
    grade_call_based,
)

FOLDER = Path(__file__).parents[1]


def server(**fields: Any) -> CompCodingResourcesServer:
    usual = {"num_processes": 2, "unit_test_timeout_secs": 10, "debug": False}
    return new_server(CompCodingResourcesServer, **(usual | fields))


def fenced(code: str) -> str:
    return f"So:\n```python\n{code}\n```\nDone."


def request(text: str, *, reasoning: str = "", difficulty: str | None = "easy", **unit_tests: Any) -> dict[str, Any]:
    row = {"verifier_metadata": {"unit_tests": unit_tests or ADD, "difficulty": difficulty}, "hash_id": "h"}
    return verify_request(row, *([thought(reasoning)] if reasoning else []), text)


async def verified(text: str, *, config: dict[str, Any] | None = None, **fields: Any) -> CompCodingVerifyResponse:
    body = CompCodingVerifyRequest.model_validate(request(text, **fields))
    return await server(**(config or {})).verify(body)


ADD: dict[str, Any] = {"inputs": ["1 2\n", "-5 5\n"], "outputs": ["3\n", "0\n"]}
ECHO: dict[str, Any] = {"inputs": ["a b\nc"], "outputs": ["a b\nc"]}
SECOND = {"inputs": ["[1, 2]\n0", "[3, 4]\n1\n"], "outputs": ["1", "4"], "fn_name": "pick"}
MAKE: dict[str, Any] = {"inputs": ["2"], "outputs": ["[1, 2]"], "fn_name": "make"}
HALF = {"inputs": ["1"], "outputs": ["0.5"], "fn_name": "half"}
PACKED = {"packed": base64.b64encode(zlib.compress(json.dumps(ADD).encode())).decode()}
PACKED_CALLS = {"packed": base64.b64encode(zlib.compress(json.dumps(MAKE).encode())).decode(), "fn_name": "make"}

SUM = "print(sum(map(int, input().split())))"
# (tests, program, reward, result)
PROGRAMS: dict[str, tuple[dict[str, Any], str, float, list[bool | int]]] = {
    "right": (ADD, SUM, 1.0, [True, True]),
    "packed": (PACKED, SUM, 1.0, [True, True]),
    "packed calls": (PACKED_CALLS, "def make(n):\n    return [1, n]", 1.0, [True]),
    "wrong at once": (ADD, "print(4)", 0.0, [-2]),
    "wrong later": (ADD, "print(3)", 0.0, [True, -2]),
    "nothing printed": (ADD, "input()", 0.0, [-2]),
    "a line too many": (ADD, SUM + "\nprint()\nprint(1)", 0.0, [-2]),
    "no Python": (ADD, "print(", 0.0, [-4]),
    "an error": (ADD, "print(3)\n1 / 0", 0.0, [-4]),
    "an exit after the answer": (ADD, SUM + "\nsys.exit(1)", 1.0, [True, True]),
    "main block": (ADD, f"def main():\n    {SUM}\nif __name__ == '__main__':\n    main()", 1.0, [True, True]),
    "globals": (ADD, f"total = 0\ndef add(x):\n    global total\n    total += x\n{SUM}", 1.0, [True, True]),
    "imports are there": (ADD, "q = deque(); print(sum(int(x) for x in sys.stdin.read().split()))", 1.0, [True, True]),
    "readline": (ADD, "print(sum(map(int, sys.stdin.readline().split())))", 1.0, [True, True]),
    "iteration": (ADD, "print(*[sum(map(int, line.split())) for line in sys.stdin])", 1.0, [True, True]),
    "buffer": (ECHO, "sys.stdout.buffer.write(sys.stdin.buffer.read())", 1.0, [True]),
    "open zero": (ECHO, "print(open(0).read())", 1.0, [True]),
    "open an input file": (ECHO, "print(open('input.txt').read())", 1.0, [True]),
    "bad bytes": (ECHO, "sys.stdout.buffer.write(b'\\xff')", 0.0, [-2]),
    "recursion": (ADD, f"def deep(n):\n    return n and deep(n - 1)\ndeep(20000)\n{SUM}", 1.0, [True, True]),
    "call": (SECOND, "def pick(a, i):\n    return a[i]", 1.0, [True, True]),
    "method": (SECOND, "class Solution:\n    def pick(self, a, i):\n        return a[i]", 1.0, [True, True]),
    "call and main": (MAKE, "def make(n): return [1, n]\nif __name__ == '__main__':\n    exit()", 1.0, [True]),
    "tuple": (MAKE, "def make(n): return (1, n)", 1.0, [True]),
    "numpy": (MAKE, "import numpy\ndef make(n): return numpy.array([1, n])", 1.0, [True]),
    "dataclass": (
        MAKE,
        "from dataclasses import *\n@dataclass\nclass A:\n    x: int\ndef make(n): return [1, A(n).x]",
        1.0,
        [True],
    ),
    "close": (HALF, "def half(n): return n / 2 + 1e-9", 1.0, [True]),
    "not close": (HALF, "def half(n): return 0.51", 0.0, [-2]),
    "a set is no list": (MAKE, "def make(n): return {1, 2}", 0.0, [-2]),
    "no function": (MAKE, "print([1, 2])", 0.0, [-4]),
    "wrong arity": (MAKE, "def make(): return [1, 2]", 0.0, [-4]),
}


@pytest.mark.parametrize(("tests", "code", "reward", "result"), PROGRAMS.values(), ids=PROGRAMS.keys())
async def test_a_program_against_its_tests(
    tests: dict[str, Any], code: str, reward: float, result: list[bool | int]
) -> None:
    answer = await verified(fenced(code), **tests)
    assert (answer.result, answer.reward) == (result, reward)
    assert (answer.mask_sample, answer.failure_kind, answer.difficulty) == (False, None, "easy")


LOOK_AROUND = """
import gc, glob, inspect, os
def bytes_of(path):
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        return os.read(file, 1 << 20)
    except OSError:
        return b""
paths = glob.glob("/sandbox/**", recursive=True) + glob.glob("/tmp/**", recursive=True)
for pid in filter(str.isdigit, os.listdir("/proc")):
    paths += [f"/proc/{pid}/{name}" for name in ("cmdline", "environ", "mem", "fd/1", "fd/3", "fd/4", "fd/5")]
seen = [bytes_of(path) for path in paths]
frame = inspect.currentframe().f_back
while frame:
    seen.append(repr(frame.f_locals).encode())
    frame = frame.f_back
seen += [repr(thing)[:5000].encode() for thing in gc.get_objects() if type(thing) in (tuple, list, bytes)]
words = [re.search(rb"WHATEVER-(\\d+)", text) for text in seen]
print(*{b"WHATEVER-" + word[1] for word in words if word} or ["nothing"])
"""
SECRET = {"inputs": ["x"], "outputs": ["WHATEVER-42"]}
NETWORK = """
import socket
def reached(address):
    try:
        socket.create_connection(address, timeout=1).close()
        return True
    except OSError:
        return False
print("reached" if any(map(reached, ADDRESSES)) else "alone")
"""
ALONE: dict[str, Any] = {"inputs": ["x"], "outputs": ["alone"]}
# (tests, program, config, result): none of them gets the reward
HOSTILE: dict[str, tuple[dict[str, Any], str, dict[str, Any], list[bool | int]]] = {
    "exits at once": (ADD, "import os\nos._exit(0)", {}, [-2]),
    "raises SystemExit": (ADD, "raise SystemExit(0)", {}, [-2]),
    "exits before the call": (MAKE, "import os\ndef make(n): os._exit(0)", {}, [-2]),
    "compares equal to all": (
        MAKE,
        (
            "class Any(list):\n    def __eq__(self, other): return True\n    def __len__(self): return 2\n"
            "def make(n): return Any([7, 7])"
        ),
        {},
        [-2],
    ),
    "patches the comparison": (
        ADD,
        "import json, builtins\njson.dumps = lambda *a, **k: '{}'\nbuiltins.all = lambda *a: True\nstr.strip = 1",
        {},
        [-4],
    ),
    "patches the driver": (
        ADD,
        (
            "import inspect, gc\nfor f in gc.get_objects():\n    if type(f).__name__ == 'Driver':\n"
            "        type(f).answer = lambda *a: {'stdout': '3'}\n"
            'import json\njson.dumps = lambda *a, **k: \'{"stdout": "3"}\'\n'
        ),
        {},
        [-2],
    ),
    "looks for the expected output": (
        SECRET,
        LOOK_AROUND,
        {},
        [-2],
    ),
    "reads the checker": (
        SECRET,
        (
            "import glob\nfor p in [*sys.path, '/opt', '/root', '/home', '/etc']:\n"
            "    for q in glob.glob(p + '/*') + glob.glob(p + '/*/*.jsonl'):\n"
            "        print(open(q).read() if '.json' in q else q)"
        ),
        {},
        [-2],
    ),
    "writes into the driver's answers": (
        ADD,
        (
            "import os\nfor pid in (os.getppid(), 1):\n    for n in range(20):\n        try:\n"
            "            open(f'/proc/{pid}/fd/{n}', 'w').write('{\"stdout\": \"3\", \"status\": 0}\\n')\n"
            "        except OSError: pass"
        ),
        {},
        [-2],
    ),
    "many brackets for a value": (MAKE, "import os\ndef make(n): os.write(3, b'[' * 100000); os._exit(0)", {}, [-2]),
    "two values": (MAKE, "import os\ndef make(n): os.write(3, b'[1, 2]'); return [1, 2]", {}, [-2]),
    "kills the driver": (ADD, "import os\nos.kill(os.getppid(), 9)\nimport time\ntime.sleep(60)", {}, [-4]),
    "forks without end": (
        ADD,
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
        {"unit_test_timeout_secs": 2},
        [-3],
    ),
    "loops without end": (ADD, "while True: pass", {"unit_test_timeout_secs": 1}, [-3]),
    "sleeps without end": (ADD, "import time\ntime.sleep(1000)", {"unit_test_timeout_secs": 1}, [-3]),
    "closes its output and stays": (
        ADD,
        "import os, time\nprint(3, flush=True)\nos.closerange(0, 10)\ntime.sleep(1000)",
        {"unit_test_timeout_secs": 1},
        [-3],
    ),
    "ignores signals": (
        ADD,
        (
            "import signal\nfor n in range(1, 32):\n    try: signal.signal(n, signal.SIG_IGN)\n"
            "    except Exception: pass\n"
            "while True: pass"
        ),
        {"unit_test_timeout_secs": 1},
        [-3],
    ),
    "prints without end": (ADD, "while True: print('x' * 100000)", {}, [-4]),
    "fills memory": (ADD, "x = [bytes(1 << 30) for _ in range(64)]", {}, [-4]),
    "fills the disk": (ADD, "f = open('big', 'wb')\nwhile True: f.write(b'x' * 1000000)", {}, [-4]),
    "crashes": (ADD, "import ctypes\nctypes.string_at(0)", {}, [-4]),
}


@pytest.mark.parametrize(("tests", "code", "config", "result"), HOSTILE.values(), ids=HOSTILE.keys())
async def test_a_hostile_program_gets_nothing(
    tests: dict[str, Any], code: str, config: dict[str, Any], result: list[bool | int]
) -> None:
    """B102, B85: expected outputs never reach a program, and nothing it does reaches us."""
    answer = await verified(fenced(code), config=config, **tests)
    assert (answer.reward, answer.result) == (0.0, result)
    assert not answer.mask_sample


async def test_a_program_has_no_network() -> None:
    """B102. A listener of this machine, and the address of cloud metadata."""
    listener = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
    async with listener:
        here = listener.sockets[0].getsockname()
        code = f"ADDRESSES = [{here!r}, ('169.254.169.254', 80)]\n{NETWORK}"
        assert (await verified(fenced(code), **ALONE)).reward == 1.0


async def test_a_program_sees_no_keys_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    answer = await verified(fenced("import os\nprint(os.environ.get('OPENAI_API_KEY'))"), inputs=[""], outputs=["None"])
    assert answer.reward == 1.0


TEXTS: dict[str, tuple[str, str | None]] = {
    "the last of two": ("```python\na\n```\nor\n```\nb\n```", "b"),
    "inline fences count as lines": ("x ```python\na\n``` y", "a"),
    "one fence only": ("```python\nprint(3)", None),
    "no fence": ("print(3)", None),
    "nothing between": ("```\n```", None),
    "words between the last two": ("```python\na\n```\nwords\n```python\n", "words"),
}


@pytest.mark.parametrize(("text", "code"), TEXTS.values(), ids=TEXTS.keys())
async def test_which_lines_are_the_program(text: str, code: str | None) -> None:
    answer = await verified(text)
    assert (answer.extracted_model_output, answer.extracted_model_code, answer.reward) == (text, code, 0.0)
    if code is None:
        assert (answer.result, answer.metadata, answer.unit_tests_time_taken) == (None, None, None)


@pytest.mark.parametrize("text", ["", " \n"])
async def test_no_text_has_a_difficulty_only(text: str) -> None:
    answer = await verified(text)
    assert (answer.reward, answer.difficulty, answer.extracted_model_output, answer.result) == (0.0, "easy", None, None)


@pytest.mark.parametrize(
    ("text", "reasoning", "penalty", "reward", "violates"),
    [
        (fenced(SUM), "", 0.0, 1.0, 0.0),
        (fenced(SUM), "<think>so</think>", 0.0, 1.0, 0.0),
        ("<think>hm</think>" + fenced(SUM), "", 0.0, 0.0, 1.0),
        ("</think>" + fenced(SUM), "", -0.5, -0.5, 1.0),
        ("</think>" + fenced("print(1)"), "", -0.5, -0.5, 1.0),
        (fenced(SUM), "<think>a<think>b", 0.25, 0.25, 1.0),
        (fenced(SUM), "a</think>b</think>", 0.25, 0.25, 1.0),
        (fenced("print(1)"), "a", -0.5, 0.0, 0.0),
    ],
)
async def test_reasoning_in_the_text(text: str, reasoning: str, penalty: float, reward: float, violates: float) -> None:
    answer = await verified(text, reasoning=reasoning, config={"reasoning_format_penalty": penalty})
    assert (answer.reward, answer.reasoning_format_violation_rate) == (reward, violates)


@pytest.mark.parametrize(
    "unit_tests",
    [
        {"inputs": [], "outputs": []},
        {"inputs": ["1"], "outputs": []},
        {"inputs": [], "outputs": ["1"]},
        {"inputs": ["1"]},
        {"inputs": "1", "outputs": "1"},
        {"packed": "%%%"},
        {"packed": base64.b64encode(b"no zlib").decode()},
        {"inputs": ["no json"], "outputs": ["1"], "fn_name": "f"},
        {"inputs": ["1"], "outputs": ["[" * 100_000], "fn_name": "f"},
    ],
)
async def test_a_row_that_tests_nothing_is_no_success_and_no_failure_of_the_model(unit_tests: dict[str, Any]) -> None:
    """0.7 let every program pass for an empty list."""
    answer = await verified(fenced("def f(x): return x"), **unit_tests)
    assert (answer.reward, answer.mask_sample, answer.failure_kind) == (0.0, True, "verifier_error")
    assert answer.failure_reason
    assert "unit_tests" in answer.failure_reason


@pytest.mark.parametrize("text", [fenced(SUM), "no program"])
async def test_a_row_without_tests_is_the_row_s_fault(text: str) -> None:
    """0.7 ended such a rollout with an error of the server."""
    body = request(text) | {"verifier_metadata": {"difficulty": "hard"}}
    answer = await server().verify(CompCodingVerifyRequest.model_validate(body))
    assert (answer.reward, answer.mask_sample, answer.failure_kind) == (0.0, True, "verifier_error")
    assert (answer.difficulty, answer.result) == ("hard", None)
    assert "has no verifier_metadata.unit_tests" in (answer.failure_reason or "")


PRINTED: list[tuple[str, str, bool]] = [
    ("a\nb", "a\nb\n", True),
    ("  a \n b", "a\nb", True),
    ("a\n\nb", "a\nb", False),
    ("", "", True),
    ("YES", "yes", True),
    ("Maybe", "maybe", False),
    ("a", "A", False),
    ("1.0", "1", True),
    ("01", "1", True),
    ("1.0000009", "1", True),
    ("1.00001", "1", False),
    ("1000000.9", "1000000", True),
    ("1000001", "1000000", False),
    ("1e3", "1000", True),
    ("1 2", "1 2.0000001", True),
    ("1 2", "1", False),
    ("1  2", "1 2", True),
    ("1 x", "1 x", True),
    ("1.0 x", "1 x", False),
    ("inf", "inf", True),
    ("inf", "1.5", False),
    ("nan", "nan", True),
    ("nan", "NaN", False),
    ("sNaN", "1.0", False),
    ("1e999999999", "1.5", False),
]


@pytest.mark.parametrize(("printed", "expected", "same"), PRINTED)
def test_printed_answers(printed: str, expected: str, same: bool) -> None:
    assert (printed_difference(printed, expected) is None) is same


RETURNED: list[tuple[Any, Any, bool]] = [
    (1, 1, True),
    (1, 2, False),
    (1, 1.0, True),
    (True, 1, True),
    (True, 1.0000001, False),
    (1.000001, 1, True),
    (1.001, 1, False),
    (10**400, 1.5, False),
    (float("nan"), float("nan"), True),
    (float("inf"), 1.0, False),
    ([0.1 + 0.2, 1], [0.3, 1], True),
    ([[0.1 + 0.2]], [[0.3]], True),
    ([0.3], [0.3, 1.0], False),
    ("1", 1, False),
    (None, None, True),
    ({"1": 2}, {"1": 2}, True),
    ([1, "a"], [1, "a"], True),
]


@pytest.mark.parametrize(("value", "expected", "same"), RETURNED)
def test_returned_answers(value: Any, expected: Any, same: bool) -> None:
    assert (returned_difference(value, expected) is None) is same


async def test_metadata_say_what_was_wrong() -> None:
    wrong = (await verified(fenced("print('a' * 1000)"), **ADD)).metadata or {}
    assert (wrong["error_code"], wrong["inputs"], wrong["expected"]) == (-2, "1 2\n", "3\n")
    assert "output_line_idx=0" in wrong["error_message"]
    assert len(wrong["output"]) < 350
    slow = (await verified(fenced("while True: pass"), config={"unit_test_timeout_secs": 1}, **ADD)).metadata or {}
    assert (slow["error_code"], slow["error_message"]) == (-3, "Time Limit Exceeded")
    broken = (await verified(fenced("1 / 0"), **ADD)).metadata or {}
    assert (broken["error_code"], broken["error_message"]) == (-4, "Runtime Error")
    assert broken["error"] == "ZeroDivisionError: division by zero"
    called = (await verified(fenced("def make(n): return 1 / 0"), **MAKE)).metadata or {}
    assert called["error_code"] == -4
    assert "case_driver" not in called["traceback"]
    right = await verified(fenced(SUM), **ADD)
    assert list(right.metadata or {}) == ["execution time"]
    assert right.unit_tests_time_taken is not None
    assert shortened("x" * 301).count("x") == 300


@pytest.mark.parametrize("code", ["while True: pass", "import time\ntime.sleep(1000)"])
async def test_a_program_that_takes_too_long_in_all_failed_every_test(
    code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert checking.seconds_for_all(10, 3) == 38
    monkeypatch.setattr(checking, "seconds_for_all", lambda timeout_s, tests: 1.5)
    answer = await verified(fenced(code), config={"unit_test_timeout_secs": 60}, **ADD)
    assert (answer.reward, answer.result, answer.mask_sample) == (0.0, [-1, -1], False)
    assert answer.metadata is not None
    assert (answer.metadata["error_code"], answer.metadata["error_message"]) == (-1, "Global Time Limit Exceeded")


async def test_the_event_loop_goes_on_while_programs_run() -> None:
    slow = asyncio.create_task(verified(fenced("while True: pass"), config={"unit_test_timeout_secs": 2}))
    fast = asyncio.create_task(verified(fenced(SUM)))
    done, _ = await asyncio.wait([slow, fast], return_when=asyncio.FIRST_COMPLETED)
    assert done == {fast}
    assert (await slow).result == [-3]


async def test_no_more_programs_at_once_than_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    live, most = 0, 0
    load = code_cases.PythonCases.load

    async def counted(self: Any, source: str, prelude: str) -> None:
        nonlocal live, most
        live += 1
        most = max(most, live)
        await load(self, source, prelude)
        live -= 1

    monkeypatch.setattr(code_cases.PythonCases, "load", counted)
    one = server(num_processes=1)
    bodies = [CompCodingVerifyRequest.model_validate(request(fenced(SUM))) for _ in range(3)]
    answers = await asyncio.gather(*(one.verify(body) for body in bodies))
    assert [answer.reward for answer in answers] == [1.0] * 3
    assert most == 1


def refused() -> Isolation:
    return Isolation(refusal="This kernel makes no namespaces.")


def refuse_isolation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(availability, "isolation", refused)
    monkeypatch.setattr("nemo_gym.verifiers.code_runner.isolation", refused)


async def test_without_isolation_nothing_runs_unless_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """B102."""
    refuse_isolation(monkeypatch)
    with pytest.raises(ConfigError, match=r"no namespaces\. Or set allow_unsandboxed: true"):
        server().setup_webserver()
    answer = await verified(fenced(SUM))
    assert (answer.reward, answer.mask_sample, answer.failure_kind) == (0.0, True, "verifier_error")
    assert "no namespaces" in (answer.failure_reason or "")
    assert server(allow_unsandboxed=True).setup_webserver()
    assert (await verified(fenced(SUM), config={"allow_unsandboxed": True})).result == [True, True]


def test_over_http_a_record_has_the_verdict_and_no_tests() -> None:
    with TestClient(server().setup_webserver()) as client:
        answer = client.post("/verify", json=request(fenced(SUM)))
        assert answer.status_code == 200
        assert list(answer.json()) == [
            "responses_create_params",
            "response",
            "reward",
            "mask_sample",
            "failure_kind",
            "failure_reason",
            "extracted_model_output",
            "extracted_model_code",
            "result",
            "metadata",
            "unit_tests_time_taken",
            "reasoning_format_violation_rate",
            "difficulty",
        ]
        assert answer.json()["result"] == [True, True]
        assert client.get("/reverify_mode").json() == "stateless"
        assert client.post("/verify", json={"verifier_metadata": {}}).status_code == 422


def test_metrics_vote_on_programs_and_split_by_difficulty() -> None:
    codes: list[list[str | None]] = [["a", "a", "b"], [None, "c", "d"]]
    responses = [
        {
            "_ng_task_index": task,
            "_ng_rollout_index": i,
            "reward": float(code in ("a", "c")),
            "extracted_model_code": code,
            "difficulty": ("easy", "hard")[task],
        }
        for task, own in enumerate(codes)
        for i, code in enumerate(own)
    ]
    with TestClient(server().setup_webserver()) as client:
        metrics = client.post("/aggregate_metrics", json={"verify_responses": responses}).json()
    agent, shown = metrics["agent_metrics"], metrics["key_metrics"]
    assert agent["pass@3/accuracy"] == 100.0
    assert agent["easy/majority@3/accuracy"] == 100.0
    assert agent["hard/pass@1[avg-of-3]/accuracy"] == pytest.approx(100 / 3)
    assert "pass@1[avg-of-3]/accuracy/avg_sample_std_dev" in agent
    assert shown["pass@1[avg-of-3]/accuracy"] == 50.0
    assert server().scores({"reward": -0.5}) == {"accuracy": False}


def test_names_of_the_livecodebench_checker() -> None:
    tests = {"input_output": json.dumps(ADD)}
    assert check_correctness(tests, SUM, 5)[0] == [True, True]
    assert grade_call_based("def f(x): return x", ["1"], ["2"], "f", 5)[0] == [-2]
    assert decimal_lines_match("1.0", "1")
    with Capturing() as printed:
        print("héllo")
    assert printed == ["héllo\n"]
    stdin = MockStdinWithBuffer("a\nb\n")
    assert (stdin.readline(), list(stdin)) == ("a\n", ["b\n"])
    stdin = MockStdinWithBuffer("é")
    assert stdin.buffer.read() == "é".encode()


def test_example_rows() -> None:
    difficulties = {row["verifier_metadata"]["difficulty"] for row in check_example_rows(FOLDER)}
    assert difficulties <= {"easy", "medium", "hard"}


async def test_example_rollouts_are_still_judged_as_they_were() -> None:
    await check_example_rollouts(server(), FOLDER, own=["result", "extracted_model_code"])
