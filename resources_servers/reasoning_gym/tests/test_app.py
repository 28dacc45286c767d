from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from environments.reasoning_gym import prepare
from nemo_gym.config.errors import ConfigError
from nemo_gym.data_preparation import PreparationError
from nemo_gym.testing.responses import call, message, reasoning, response, verify_request
from nemo_gym.testing.verdicts import (
    Case,
    check_case,
    check_example_rows,
    new_server,
    rows_of,
    verified,
)
from resources_servers.reasoning_gym import app
from resources_servers.reasoning_gym.app import ReasoningGymResourcesServer
from resources_servers.reasoning_gym.harmless import is_harmless, is_plain_maths
from resources_servers.reasoning_gym.scoring import extract_answer, uses_numbers
from resources_servers.reasoning_gym.scripts import create_dataset
from resources_servers.reasoning_gym.tests import stand_in

FOLDER = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The stand-in for the library is found, by workers too."""
    folder = tmp_path_factory.mktemp("library")
    stand_in.write(folder)
    sys.path.insert(0, str(folder))
    yield
    sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def server(library: None) -> ReasoningGymResourcesServer:
    return new_server(ReasoningGymResourcesServer)


def asked(*output: Any, dataset: str | None = "exact", answer: str | None = "42", **metadata: Any) -> dict[str, Any]:
    named = {} if dataset is None else {"source_dataset": dataset}
    return verify_request({"question": "6 * 7?", "answer": answer, "metadata": {**named, **metadata}}, *output)


def tagged(said: str, **fields: Any) -> dict[str, Any]:
    return asked(f"<answer>{said}</answer>", **fields)


NUMBERS = {"dataset": "countdown", "answer": "(5 + 7) * 3", "numbers": [3, 5, 7], "target": 36}
GRID = {"dataset": "arc_agi", "answer": "1 2\n3 4", "output": [[1, 2], [3, 4]]}
FAULT = {"mask_sample": True, "failure_kind": "verifier_error", "score": 0.0}

CASES = [
    Case("right", tagged("42"), 1.0, own={"score": 1.0, "extracted_answer": "42", "task_name": "exact"}),
    Case("wrong", tagged("41"), 0.01, own={"score": 0.01, "extracted_answer": "41"}),
    Case("in a box", asked(r"It is \boxed{42}."), 1.0),
    Case("the whole text", asked(" 42\n"), 1.0),
    Case("over several messages", asked("<ans", message("wer>4", "2</answer>")), 1.0),
    Case("nothing", asked(), 0.01, own={"extracted_answer": ""}),
    Case("reasoning is no answer", asked(reasoning("42")), 0.01, own={"extracted_answer": ""}),
    Case("a call is no answer", asked(call("answer", {"x": 42})), 0.01),
    Case("no known answer", tagged("42", answer=None), 0.01, own={"answer": None}),
    # what JSON made of an entry
    Case("a grid", tagged("1 2\n3 4", **GRID), 1.0),
    Case("another grid", tagged("1 2\n3 5", **GRID), 0.0),
    Case("a grid of rearc", tagged("1 2\n3 4", **{**GRID, "dataset": "rearc"}), 1.0),
    # B83
    Case("a formula", tagged("3 * (7 + 5)", **NUMBERS), 1.0),
    Case("a wrong formula", tagged("3 * 7 + 5", **NUMBERS), 0.05),
    Case("other numbers", tagged("30 + 6", **NUMBERS), 0.05),
    Case("a number twice", tagged("3 + 5 + 7 + 7 * 3", **NUMBERS), 0.05),
    Case("a number left out", tagged("(5 + 7) * 3 - 5 + 5", **NUMBERS), 0.05),
    Case("other numbers for 24", tagged("24", **{**NUMBERS, "dataset": "puzzle24", "target": 24}), 0.01),
    Case("no numbers given", tagged("30 + 6", dataset="countdown", target=36), 1.0),
    # B102
    Case("a program", tagged("__import__('os').getpid() * 0 + 36 or (3, 5, 7)", **NUMBERS), 0.01),
    Case("a call", tagged("(lambda: 36)() + 0 * (3 + 5 + 7)", **NUMBERS), 0.01),
    Case("words", tagged("I can't say", **NUMBERS), 0.01),
    # an answer on which the scorer fails, while the row is sound
    Case("a crash", tagged("boom", dataset="touchy"), 0.0, own={"score": 0.0, "extracted_answer": "boom"}),
    # B82: the row, or the library, is at fault
    Case("a scorer that fails", tagged("42", dataset="broken"), 0.0, own=FAULT),
    Case("a score that is no number", tagged("42", dataset="nan"), 0.0, own=FAULT),
    Case("a score that is a text", tagged("42", dataset="text"), 0.0, own=FAULT),
    Case("an unknown data set", tagged("42", dataset="chess"), 0.0, own={**FAULT, "task_name": "chess"}),
    Case("a grid that is none", tagged("1", **{**GRID, "output": [1]}), 0.0, own=FAULT),
    Case("no data set", tagged("42", dataset=None), 0.0, own={**FAULT, "task_name": None, "extracted_answer": "42"}),
    Case("one that is no text", tagged("42", dataset=None, source_dataset=7), 0.0, own=FAULT),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_rewards(server: ReasoningGymResourcesServer, case: Case) -> None:
    await check_case(server, case)


async def test_a_scorer_without_end(server: ReasoningGymResourcesServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that holds up the scorer is worth nothing; a scorer that always does is a fault."""
    monkeypatch.setattr(app, "SECONDS", 0.2)
    slow = await verified(server, tagged("slow", dataset="touchy"))
    assert (slow.reward, slow.mask_sample) == (0.0, False)
    endless = await verified(server, tagged("42", dataset="endless"))
    assert (endless.reward, endless.mask_sample, endless.failure_kind) == (0.0, True, "verifier_error")


async def test_why_a_row_can_not_be_scored(server: ReasoningGymResourcesServer) -> None:
    assert "source_dataset" in (await verified(server, tagged("42", dataset=None))).failure_reason
    assert "broken" in (await verified(server, tagged("42", dataset="broken"))).failure_reason


async def test_hostile_texts_are_answered(server: ReasoningGymResourcesServer) -> None:
    for text in ("(" * 200_000, "[" * 200_000, "<answer>" * 100_000, "9" * 100_000, "\x00\u202e", " " * 500_000 + "("):
        for fields in ({"dataset": "exact"}, NUMBERS):
            answer = await verified(server, asked(text, **fields))
            assert (answer.reward, answer.mask_sample) == (0.01, False), text[:10]


def test_without_the_library_the_server_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "LIBRARY", "no_such_library")
    with pytest.raises(ConfigError, match="reasoning-gym, which is not installed"):
        new_server(ReasoningGymResourcesServer).setup_webserver()


# --- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer>1</answer> no, <answer> 2\n</answer>", "2"),
        (r"<answer>1</answer> \boxed{2}", "1"),
        (r"\boxed{1} \boxed{2}", "1"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1"),
        (r"\boxed{} so 3", r"\boxed{} so 3"),
        ("<answer>1", "<answer>1"),
        ("<answer></answer>", ""),
        (" 1 \n", "1"),
        ("", ""),
    ],
)
def test_where_an_answer_is(text: str, answer: str) -> None:
    assert extract_answer(text) == answer


def test_the_numbers_of_a_puzzle() -> None:
    entry: dict[str, Any] = {"metadata": {"numbers": [3, 3, 7]}}
    assert uses_numbers("3*(3+7)", entry) and not uses_numbers("3*7", entry) and not uses_numbers("33*7", entry)
    assert uses_numbers("1", {"metadata": {}}) and uses_numbers("1", {"metadata": {"numbers": "3"}})


def scorer_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str) -> Callable[..., Any]:
    """A function of a module with this source."""
    (tmp_path / "scorer_module.py").write_text(f"{source}\n\ndef score(answer):\n    return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "scorer_module", raising=False)
    import scorer_module  # type: ignore[import-not-found]

    function: Callable[..., Any] = scorer_module.score
    return function


PROGRAMS = [
    "__import__('os').system('true')", "open('x')", "print(1)", "[x for x in y]", "(lambda: 1)()", "a.b",
    "f'{open}'", "{1: open('x')}", "[print()]", "x[0]", "(x := 1)", "exit()",
]  # fmt: skip
FORMULAS = ["(5 + 7) * 3", "-2*x**2/3 + C", "log(x) + sin(2*x)", "2.5", "1/2", "sqrt(abs(x))", "3 - -4"]
DATA = ["[[1, 2], ['a', -1]]", '{"a": [1.5, null, true]}', "(1,)", "'text'", "x"]
WORDS = ["_ _ Q _", "1 2\n3 4", "no idea, sorry", "", "A \u2192 B"]


def test_what_may_be_evaluated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    scorer = scorer_in(monkeypatch, tmp_path, "value = lambda answer: eval(answer)")
    assert [text for text in PROGRAMS if is_harmless(text, scorer)] == []
    assert [text for text in [*FORMULAS, *DATA, *WORDS] if not is_harmless(text, scorer)] == []


def test_what_a_parser_of_maths_may_have(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = "if 0:\n    from sympy import parse_expr\nvalue = lambda answer: parse_expr(answer)"
    scorer = scorer_in(monkeypatch, tmp_path, source)
    assert [text for text in [*PROGRAMS, *WORDS[:1]] if is_harmless(text, scorer)] == []
    assert [text for text in [*FORMULAS, *DATA, "5!", "2 x + 1"] if not is_harmless(text, scorer)] == []


def test_other_scorers_get_every_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = "def parse_expr(text):\n    return parse_expr(text[1:])\n\n\ndef evaluation(x): pass\n"
    assert is_harmless("print(1)", scorer_in(monkeypatch, tmp_path, source))
    assert not is_harmless("print(1)", object()) and is_harmless("1 + 1", object())


def test_plain_maths() -> None:
    calls = [
        "eval(x)",
        "x(1)",
        "(x)(1)",
        "(x)  (1)",
        "2(3)",
        "sin.x(1)",
        "1 .real",
        "x.y",
        "sin (chr(95))",
        "a;b",
        "'a'",
    ]
    assert [text for text in calls if is_plain_maths(text)] == []
    assert is_plain_maths("sin (x) * (1 + 2)") and is_plain_maths("((1))")


# --- over HTTP --------------------------------------------------------------------------------------------------------


def test_a_trainer_posts_verify_alone(server: ReasoningGymResourcesServer) -> None:
    """63 C.5: Unsloth's reader opens no session, keeps no cookies and drops the nulls of a row."""
    shell = {**response(message("<answer>42</answer>")), "id": "resp", "parallel_tool_calls": False}
    row = {"question": "6 * 7?", "answer": "42", "metadata": {"source_dataset": "exact"}}
    prompt = {"input": [{"role": "user", "content": "6 * 7?"}]}
    with TestClient(server.setup_webserver()) as client:
        answer = client.post("/verify", json={"responses_create_params": prompt, "response": shell, **row})
        assert (answer.status_code, answer.json()["reward"]) == (200, 1.0)
        assert {name: answer.json()[name] for name in row} == row
        assert client.get("/reverify_mode").json() == "stateless"
        for lacking in ("question", "answer", "metadata"):
            request = {"responses_create_params": prompt, "response": shell, **row}
            del request[lacking]
            assert client.post("/verify", json=request).status_code == 422, lacking


# --- data -------------------------------------------------------------------------------------------------------------


def test_rows_are_generated(
    library: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """63 C.5: the options of the script."""
    for name in ("", ".exact", ".formulas", ".factory"):  # so that it is imported anew, and forgotten afterwards
        monkeypatch.setitem(sys.modules, f"reasoning_gym{name}", None)
        del sys.modules[f"reasoning_gym{name}"]
    output = tmp_path / "rows.jsonl"
    create_dataset.main(["--task", "exact", "--size", "3", "--seed", "5", "--output", str(output)])
    assert "(3 rows)" in capsys.readouterr().out
    rows = rows_of(output)
    assert rows[1] == {
        "responses_create_params": {"input": [{"role": "user", "content": f"5 + 1?\n\n{create_dataset.FORMAT}"}]},
        "question": "5 + 1?\n",
        "answer": "6",
        "metadata": {"source_dataset": "exact", "path": "x", "pair": [1, 1]},
    }
    for wrong in (["--task", "chess"], ["--task", "exact", "--size", "0"]):
        with pytest.raises(SystemExit) as ended:
            create_dataset.main([*wrong, "--output", str(output)])
        assert ended.value.code == 1 and capsys.readouterr().err.startswith("Error: ")
    assert len(rows_of(output)) == 3


def test_generating_rows_needs_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(PreparationError, match="uv pip install reasoning-gym"):
        create_dataset.rows("exact", 1, 1)


def test_published_rows_become_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    published = {"question": "6 * 7?", "answer": "42", "metadata": json.dumps({"source_dataset": "exact"}), "x": None}
    monkeypatch.setattr(prepare, "hub_rows", lambda repository, split: iter([published] * 3))
    rows = rows_of(prepare.prepare(output=tmp_path / "train.jsonl", limit=2))
    assert len(rows) == 2 and rows[0] == {
        "responses_create_params": {"input": [{"role": "user", "content": "6 * 7?"}]},
        "question": "6 * 7?",
        "answer": "42",
        "metadata": {"source_dataset": "exact"},
    }
    asked = {**published, "responses_create_params": '{"input": "Well?"}'}
    assert prepare.as_row(asked)["responses_create_params"] == {"input": "Well?"}


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [({"question": None}, "question"), ({"metadata": "{}"}, "source_dataset"), ({"metadata": "{"}, "no JSON")],
)
def test_published_rows_that_can_not_be_used(changed: dict[str, Any], complaint: str) -> None:
    good = {"question": "?", "answer": "1", "metadata": {"source_dataset": "exact"}}
    with pytest.raises(PreparationError, match=f"Row 3 .*{complaint}"):
        prepare.as_row({**good, **changed}, 3)


def test_example_rows() -> None:
    names = [row["metadata"]["source_dataset"] for row in check_example_rows(FOLDER)]
    assert names == ["mini_sudoku", "countdown", "leg_counting", "word_sorting", "spell_backward"]
