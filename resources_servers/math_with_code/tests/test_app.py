from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from fastapi.testclient import TestClient

from nemo_gym.base_resources_server import BaseSeedSessionRequest
from nemo_gym.config.errors import ConfigError
from nemo_gym.sandbox.providers.namespaces.availability import Isolation, isolation
from nemo_gym.testing.responses import call, call_output, reasoning, response, verify_request
from nemo_gym.testing.verdicts import Case, check_example_rows, new_server, rows_of
from nemo_gym.verifiers import code_runner
from nemo_gym.verifiers.python_session import OUT_OF_TIME
from resources_servers.math_with_code import generate_data
from resources_servers.math_with_code.app import (
    PythonExecutorResourcesServer,
    PythonExecutorVerifyRequest,
    _answers_match,
    _extract_boxed_answer,
    _normalize_answer,
)

FOLDER = Path(__file__).parents[1]


@pytest.fixture
def client() -> Iterator[TestClient]:
    with TestClient(new_server(PythonExecutorResourcesServer, max_execution_time=1).setup_webserver()) as client:
        yield client


def asked(*output: Any, expected: str = "42") -> dict[str, Any]:
    return verify_request({"expected_result": expected}, *output)


def printed(stdout: str) -> dict[str, Any]:
    told = {"success": True, "stdout": stdout, "stderr": "", "error_message": None, "result": "7"}
    return call_output(told)


BOX, OTHER = r"\boxed{42}", r"\boxed{41}"

CASES = [
    Case("in a message", asked(f"So {BOX}."), 1.0, own={"extracted_answer": "42", "accuracy": 1.0}),
    Case("a wrong one", asked(OTHER), 0.0, own={"extracted_answer": "41", "accuracy": 0.0}),
    Case("the last box of a message", asked(f"{OTHER} {BOX}"), 1.0),
    Case("the last message with a box", asked(OTHER, BOX, "Done."), 1.0),
    Case("also before another one", asked(BOX, OTHER), 0.0, own={"extracted_answer": "41"}),
    Case("a message goes before what was printed", asked(BOX, printed(OTHER)), 1.0),
    Case("printed", asked(call("execute_python"), printed(BOX), "See above."), 1.0),
    Case("printed last", asked(printed(OTHER), printed(BOX), printed("")), 1.0),
    Case("output that isn't JSON", asked(call_output(f"It says {BOX}")), 1.0),
    Case("JSON without stdout is read whole", asked(call_output({"output": BOX})), 1.0),
    Case("a value is not printed", asked(call_output({"stdout": "", "result": BOX})), 0.0),
    Case("not what a tool is called with", asked(call("execute_python", {"code": BOX})), 0.0),
    Case("not what is thought", asked(reasoning(BOX)), 0.0, own={"extracted_answer": None}),
    Case("nothing", asked(), 0.0, own={"extracted_answer": None, "accuracy": 0.0}),
    Case("empty", asked(""), 0.0),
    Case("no box", asked("42"), 0.0),
    Case("a blank box", asked(r"\boxed{ }", printed(BOX)), 1.0),
    Case("a box that stays open", asked(r"\boxed{42", printed(BOX)), 1.0),
    Case("a box with braces", asked(r"\boxed{\frac{1}{2}}", expected=r"\frac{1}{2}"), 1.0),
    Case("nearly", asked(r"\boxed{42.00001}"), 1.0),
    Case("not nearly enough", asked(r"\boxed{42.0001}"), 0.0),
    Case("as text", asked(r"\boxed{\text{42}}"), 1.0),
    Case("as a formula", asked(r"\boxed{$42$}"), 1.0),
    Case("in powers", asked(r"\boxed{4.2e1}"), 1.0),
    Case("words", asked(r"\boxed{no  one}", expected="no one"), 1.0),
    Case("an empty expected answer", asked(BOX, expected=""), 0.0),
    Case("nested without end", asked("\\boxed{" * 20_000 + "{" * 100_000), 0.0),
    Case("JSON without end", asked(call_output("[" * 200_000)), 0.0),
    Case("odd characters", asked("\\boxed{\x00\u202e\ufffd\U0001d7dc}"), 0.0),
    Case("a number without end", asked("\\boxed{" + "4" * 300_000 + "}"), 0.0),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rewards(case: Case, client: TestClient) -> None:
    answer = client.post("/verify", json=case.request)
    assert answer.status_code == 200
    found = {name: answer.json()[name] for name in ("reward", "mask_sample", *case.own)}
    assert found == {"reward": case.reward, "mask_sample": False, **case.own}


MATCHES = [
    ("42", "42", True),
    (" 42 ", "42", True),
    (r"\(42\)", "42", True),
    (r"\(\text{42}\)", "42", True),
    (r"$\text{a  b}$", "a b", True),
    ("$$42$$", "42", False),
    ("42.0", "42", True),
    ("1e-7", "0", True),
    ("2e-6", "0", False),
    ("1000000.9", "1000000", True),
    ("1000001.1", "1000000", False),
    ("-42", "42", False),
    ("4 2", "42", False),
    ("nan", "nan", True),
    ("nan", "42", False),
    ("inf", "42", False),
    ("1e999", "42", False),
    ("42 or 43", "42", False),
    ("", "", True),
]


@pytest.mark.parametrize(("answer", "expected", "match"), MATCHES)
def test_what_is_the_same(answer: str, expected: str, match: bool) -> None:
    assert _answers_match(answer, expected) is match


def test_a_correct_answer_that_is_changed_never_scores() -> None:
    """B83"""
    for answer in ("42", "-1.5", r"\frac{3}{4}", "x + 1"):
        for changed in (f"{answer} 0", f"{answer} + 1", f"-({answer})", f"{answer}, {answer}", ""):
            assert not _answers_match(changed, answer)


def test_names_that_others_import() -> None:
    assert _extract_boxed_answer(r"\boxed{1} \boxed{ 2 }") == "2"
    assert _normalize_answer(r" $ \text{ a  b } $ ") == "a b"


# --- the tool ---------------------------------------------------------------------------------------------------------

needs_isolation = pytest.mark.skipif(bool(isolation().refusal), reason=isolation().refusal or "isolated")


def ran(client: TestClient, code: str) -> dict[str, Any]:
    answer = client.post("/execute_python", json={"code": code})
    assert answer.status_code == 200
    told: dict[str, Any] = answer.json()
    return told


GOOD = {"success": True, "stdout": "", "stderr": "", "error_message": None, "result": None}


@needs_isolation
def test_a_session_keeps_its_state(client: TestClient) -> None:
    assert client.post("/seed_session", json={}).status_code == 200
    assert ran(client, "x = 5\nprint(x)") == {**GOOD, "stdout": "5\n"}
    assert ran(client, "x + 1") == {**GOOD, "result": "6"}
    failed = {**GOOD, "success": False}
    assert ran(client, "def f():\n    return x\nf()") == {**failed, "error_message": "name 'x' is not defined"}
    assert ran(client, "sorted([1])") == {**failed, "error_message": "name 'sorted' is not defined"}
    assert ran(client, "while True: pass") == {**failed, "error_message": OUT_OF_TIME}
    assert ran(client, "np.arange(x).sum()") == {**GOOD, "result": "10"}
    assert client.post("/execute_python", json={"code": 5}).status_code == 422


@needs_isolation
def test_a_session_begins_without_being_seeded_and_ends_when_told(client: TestClient) -> None:
    assert ran(client, "y = 1\ny")["result"] == "1"
    assert client.post("/end_session").json() == {"success": True}
    assert ran(client, "y")["error_message"] == "name 'y' is not defined"
    client.post("/seed_session", json={})
    assert ran(client, "z = 1\nz")["result"] == "1"
    client.post("/seed_session", json={})
    assert ran(client, "z")["error_message"] == "name 'z' is not defined"


@needs_isolation
def test_sessions_are_nothing_to_each_other() -> None:
    app = new_server(PythonExecutorResourcesServer, all_of_python=True).setup_webserver()
    with TestClient(app) as one, TestClient(app) as two:
        assert ran(one, "def f(n):\n    return n * f(n - 1) if n else 1\nf(5)")["result"] == "120"
        assert ran(two, "f(5)")["error_message"] == "name 'f' is not defined"


@needs_isolation
def test_a_session_is_over_when_it_was_verified() -> None:
    """B85: nor was there anything of the checker in it."""
    server = new_server(PythonExecutorResourcesServer, all_of_python=True)
    with TestClient(server.setup_webserver()) as client:
        client.post("/seed_session", json={"expected_result": "zyx42"})
        look = "import os\n[n for n in os.listdir('/') if 'work' in n or 'root' in n], os.environ.get('USER')"
        assert "zyx42" not in ran(client, look)["result"]
        seen = "import os\nprint(sorted(p for p in os.listdir('/proc') if p.isdigit()))"
        assert len(ran(client, seen)["stdout"].split(",")) <= 3
        assert client.post("/verify", json=asked(BOX)).json()["reward"] == 1.0
        assert len(server._sessions) == 0
        assert client.post("/execute_python", json={"code": "1"}).status_code == 410
        client.post("/seed_session", json={})
        assert ran(client, "1")["result"] == "1"
        assert client.post("/verify", json={"expected_result": "1"}).status_code == 422


async def test_it_is_over_also_where_nobody_but_the_verifier_sees_to_that() -> None:
    server = new_server(PythonExecutorResourcesServer)
    request = MagicMock(session={"session_id": "s"})
    await server.seed_session(request, BaseSeedSessionRequest())
    verdict = await server.verify(request, PythonExecutorVerifyRequest.model_validate(asked(BOX)))
    assert (verdict.reward, len(server._sessions)) == (1.0, 0)


@needs_isolation
def test_only_so_many_interpreters_stay() -> None:
    app = new_server(PythonExecutorResourcesServer, max_sessions=1).setup_webserver()
    with TestClient(app) as one, TestClient(app) as two:
        assert ran(one, "1")["result"] == "1"
        assert ran(two, "2")["result"] == "2"
        gone = one.post("/execute_python", json={"code": "1"})
    assert (gone.status_code, "session_expired" in gone.text) == (410, True)


def test_without_isolation_it_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_runner, "isolation", lambda: Isolation(refusal="This kernel makes no namespaces."))
    with pytest.raises(ConfigError, match=r"no namespaces\. Or set allow_unsandboxed: true"):
        new_server(PythonExecutorResourcesServer).setup_webserver()
    app = new_server(PythonExecutorResourcesServer, allow_unsandboxed=True).setup_webserver()
    with TestClient(app) as client:
        assert ran(client, "1 + 1")["result"] == "2"
        assert client.get("/reverify_mode").json() == "stateless"


# --- data -------------------------------------------------------------------------------------------------------------


def test_example_rows() -> None:
    for row in check_example_rows(FOLDER):
        PythonExecutorVerifyRequest.model_validate(row | {"response": response("x")})
        assert [tool["name"] for tool in row["responses_create_params"]["tools"]] == ["execute_python"]


def test_example_rollouts_are_still_judged_as_they_were(client: TestClient) -> None:
    rows, records = (rows_of(FOLDER / "data" / f"example{end}.jsonl") for end in ("", "_rollouts"))
    assert [record["reward"] for record in records] == [1.0, 1.0, 1.0, 0.0, 1.0]
    for row, record in zip(rows, records, strict=True):
        again = client.post("/verify", json={**row, "response": record["response"]}).json()
        names = ("reward", "extracted_answer", "accuracy", "expected_result", "id")
        assert {name: again[name] for name in names} == {name: record[name] for name in names}


def test_generated_rows(tmp_path: Path) -> None:
    rows = list(generate_data.rows("train", 60))
    assert rows == list(generate_data.rows("train", 60)) != list(generate_data.rows("validation", 60))
    problems = {row["responses_create_params"]["input"][1]["content"]: row["expected_result"] for row in rows}
    assert len({tuple(problem.split()[:5]) for problem in problems}) == 4  # two begin alike
    assert all(answer.isdigit() for answer in problems.values())
    assert generate_data.multiples(chance(3, 5, 20)) == (
        "What is the sum of all positive whole numbers below 20 that are divisible by 3 or 5?",
        78,
    )
    assert generate_data.divisors(chance(2, 2, 3))[1] == 6
    assert generate_data.digits(chance(10))[1] == 27
    assert generate_data.paths(chance(2, 2))[1] == 6
    assert generate_data.remainder(chance(2, 10, 1000))[1] == 24
    written = generate_data.prepare("validation", tmp_path / "v.jsonl", 3)
    assert [row["id"] for row in rows_of(written)] == [0, 1, 2]


def chance(*numbers: int) -> Any:
    """It gives these."""
    settled = MagicMock()
    settled.randint.side_effect = numbers
    return settled
