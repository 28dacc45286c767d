from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pydantic import ValidationError

from environments.instruction_following import prepare
from nemo_gym.config.task_data import load_task_data_schema
from nemo_gym.data_preparation import PreparationError
from nemo_gym.testing.responses import call, message, reasoning, response, verify_request
from nemo_gym.testing.verdicts import (
    Case,
    check_case,
    check_example_rollouts,
    check_example_rows,
    new_server,
    rows_of,
    verified,
)
from nemo_gym.verifiers.instructions import MissingLibraryError
from nemo_gym.verifiers.instructions.following import followed, package_there
from nemo_gym.verifiers.instructions.registry import InstructionError
from resources_servers.instruction_following import app
from resources_servers.instruction_following.app import (
    InstructionFollowingResourcesServer,
    InstructionFollowingResourcesServerConfig,
)

FOLDER = Path(__file__).parents[1]
WORDS = ("length_constraints:number_words", {"num_words": 3, "relation": "at least"})
COMMA: tuple[str, Any] = ("punctuation:no_comma", {})
TITLE = ("detectable_format:title", None)


def task(*instructions: tuple[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "instruction_id_list": [name for name, _ in instructions],
        "kwargs": [arguments for _, arguments in instructions],
        "prompt": "Write.",
        **fields,
    }


def asked(*output: Any, to: Any = (WORDS, COMMA), **fields: Any) -> dict[str, Any]:
    return verify_request({"id": 1, **task(*to, **fields)}, *output)


def nested(*output: Any, to: Any = (WORDS, COMMA), top: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return verify_request({"id": 1, "verifier_metadata": task(*to, **fields), **(top or {})}, *output)


def follows(*answers: bool) -> dict[str, Any]:
    return {"follow_instruction_list": list(answers), "follow_all_instructions": all(answers)}


MASKED = {"mask_sample": True, "failure_kind": "verifier_error", "follow_all_instructions": False}
FRACTION = {"grading_mode": "fraction"}

CASES = [
    Case("all", asked("One two three"), 1.0, own=follows(True, True)),
    Case("some", asked("One, two, three"), 0.0, own=follows(True, False)),
    Case("none", asked("One,"), 0.0, own=follows(False, False)),
    Case("a share of all", asked("One two three", **FRACTION), 1.0, own=follows(True, True)),
    Case("a share", asked("One, two, three", **FRACTION), 0.5, own=follows(True, False)),
    Case("a third", asked("One", to=[COMMA, WORDS, TITLE], **FRACTION), 1 / 3, own=follows(True, False, False)),
    Case("no arguments", asked("<<One>>", to=[TITLE]), 1.0, own=follows(True)),
    Case("no instructions", asked("One", to=[]), 1.0, own=follows()),
    Case("no share of none", asked("One", to=[], **FRACTION), 0.0, own=follows()),
    Case("an id without arguments", asked("One", to=[COMMA], instruction_id_list=["punctuation:no_comma", "x"]), 1.0,
         own=follows(True)),
    Case("arguments without an id", asked("One", to=[COMMA], kwargs=[{}, {}]), 1.0, own=follows(True)),
    Case("null arguments", asked("One two three", to=[(WORDS[0], {**WORDS[1], "letter": None})]), 1.0),
    # where the task stands
    Case("in verifier_metadata", nested("One two three"), 1.0, own=follows(True, True)),
    Case("verifier_metadata goes before", nested("One, two, three", top=task(COMMA), **FRACTION), 0.5),
    Case("half of it there", verify_request({"id": 1, **task(WORDS, COMMA), "verifier_metadata": FRACTION},
                                            "One, two, three"), 0.5),
    Case("null verifier_metadata", verify_request({"id": 1, **task(COMMA), "verifier_metadata": None}, "One"), 1.0),
    # the text
    Case("no response", asked(to=[COMMA]), 0.0, own=follows(False)),
    Case("a blank one", asked(" \n", to=[COMMA]), 0.0, own=follows(False)),
    Case("the last message", asked("One, two", "One", to=[COMMA]), 1.0),
    Case("its first text", asked(message("One", "two, three"), to=[COMMA]), 1.0),
    Case("cut while reasoning", asked("One", reasoning("hm"), to=[COMMA]), 0.0, own=follows(False)),
    Case("a call at the end", asked("One", call("f"), to=[COMMA]), 0.0, own=follows(False)),
    # the row is at fault
    Case("an unknown instruction", asked("One", to=[COMMA, ("magic:spell", {})]), 0.0, own=MASKED),
    Case("an argument that lacks", asked("One", to=[(WORDS[0], {"num_words": 3})]), 0.0, own=MASKED),
    Case("a keyword that is no pattern", asked("One", to=[("keywords:existence", {"keywords": ["("]})]), 0.0,
         own=MASKED),
    Case("another mode", asked("One", to=[COMMA], grading_mode="most"), 0.0, own=MASKED),
]  # fmt: skip


@pytest.fixture(scope="module")
def server() -> InstructionFollowingResourcesServer:
    return new_server(InstructionFollowingResourcesServer, checkers="own")


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_rewards(server: InstructionFollowingResourcesServer, case: Case) -> None:
    await check_case(server, case)


@pytest.mark.parametrize(("keyword", "masks"), [("(a+)+c", False), (r"(\w+\s?)+;;", True)])
async def test_a_keyword_without_end(keyword: str, masks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keywords are patterns of the row's: they must not hold up the server. If only this text takes so long, that is
    the text's doing."""
    monkeypatch.setattr(app, "SECONDS", 0.5)
    request = asked("a" * 64 + "b!", to=[("keywords:existence", {"keywords": [keyword]})])
    answer = await verified(new_server(InstructionFollowingResourcesServer), request)
    assert (answer.reward, answer.mask_sample, answer.failure_kind) == (0.0, masks, "verifier_error" if masks else None)
    assert "took more than" in answer.failure_reason


async def test_hostile_texts_are_answered() -> None:
    server = new_server(InstructionFollowingResourcesServer)
    instructions = [
        ("detectable_format:json_format", {}),
        ("length_constraints:number_sentences", {"num_sentences": 10**9, "relation": "at least"}),
        ("detectable_format:title", {}),
    ]
    for text in ("[" * 200_000, "." * 500_000, "<<" * 200_000, "\x00\u202e\U0001f600", "Mr. " * 100_000):
        answer = await verified(server, asked(text, to=instructions))
        assert (answer.reward, answer.mask_sample) == (0.0, False)
        assert answer.follow_instruction_list == [False, False, False]


async def test_a_missing_library_is_no_wrong_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(*args: Any, **named: Any) -> Any:
        raise MissingLibraryError("An instruction needs the package `langdetect`: install it.")

    server = new_server(InstructionFollowingResourcesServer)
    monkeypatch.setattr(server._pool, "run", run)
    answer = await verified(server, asked("One"))
    assert (answer.mask_sample, answer.failure_kind) == (True, "verifier_error")
    assert "langdetect" in answer.failure_reason


async def test_languages_are_told_always_in_the_same_way() -> None:
    pytest.importorskip("langdetect", reason="langdetect is not installed")
    german = asked("Der Himmel ist heute blau.", to=[("language:response_language", {"language": "de"})])
    server = new_server(InstructionFollowingResourcesServer)
    assert [(await verified(server, german)).reward for _ in range(3)] == [1.0, 1.0, 1.0]


# --- over HTTP --------------------------------------------------------------------------------------------------------


def test_a_trainer_posts_verify_alone() -> None:
    """63 C.5: Unsloth's reader opens no session, keeps no cookies and drops the nulls of a row."""
    server = new_server(InstructionFollowingResourcesServer)
    rewards = []
    for row, record in zip(
        rows_of(FOLDER / "data/example.jsonl"), rows_of(FOLDER / "data/example_rollouts.jsonl"), strict=True
    ):
        text = record["response"]["output"][-1]["content"][0]["text"]
        shell = {**response(message(text)), "id": "resp", "parallel_tool_calls": False}
        fields = {name: value for name, value in row.items() if value is not None}
        with TestClient(server.setup_webserver()) as client:
            answer = client.post("/verify", json={**fields, "response": shell})
        assert answer.status_code == 200, answer.text
        rewards.append((answer.json()["reward"], record["reward"]))
    assert all(now == then for now, then in rewards) and len(set(rewards)) > 1


def test_over_http() -> None:
    with TestClient(new_server(InstructionFollowingResourcesServer).setup_webserver()) as client:
        answer = client.post("/verify", json=asked("One, two, three", unknown=1))
        assert answer.status_code == 200
        own = answer.json()
        assert own["verifier_metadata"] == task(WORDS, COMMA, grading_mode="binary")
        assert (own["id"], own["reward"], own["follow_instruction_list"]) == (1, 0.0, [True, False])
        assert client.get("/reverify_mode").json() == "stateless"
        for lacking in ("instruction_id_list", "kwargs", "prompt", "id"):
            request = asked("One")
            del request[lacking]
            assert client.post("/verify", json=request).status_code == 422, lacking
        assert client.post("/verify", json=asked("One", kwargs="x")).status_code == 422
        assert client.post("/verify", json={**asked("One"), "verifier_metadata": "x"}).status_code == 422
        assert client.post("/verify", json=[]).status_code == 422


# --- the package that 0.7 uses ----------------------------------------------------------------------------------------

PACKAGE = """
class Instruction:
    def __init__(self, name):
        self.name = name

    def build_description(self, *, word=None, prompt=None):
        self.word = word or prompt
        if word == "raise":
            raise ValueError

    def get_instruction_args_keys(self):
        return ["prompt"] if self.name == "x:prompt" else ["word"]

    def check_following(self, text):
        return self.word in text


INSTRUCTION_DICT = {"x:word": Instruction, "x:prompt": Instruction}
"""


def registry() -> types.ModuleType:
    made = types.ModuleType("registry")
    exec(PACKAGE, made.__dict__)
    return made


def test_checks_of_a_package() -> None:
    kwargs: Any = [{"word": "sun", "x": None}, {"word": "raise"}, {"other": 1}]
    answers = followed("training", ["x:word"] * 3, kwargs, ["The sun.", "Moon.", " "], registry=registry())
    assert answers == [[True, False, False], [False] * 3, [False] * 3]
    with pytest.raises(InstructionError, match="unknown"):
        followed("training", ["punctuation:no_comma"], [{}], ["x"], registry=registry())
    assert followed("ifbench", ["x:prompt"], [None], ["a sun"], registry=registry(), prompt="sun") == [[True]]


@pytest.mark.parametrize(("checkers", "reward"), [("auto", 1.0), ("package", 1.0), ("own", 0.0)])
async def test_the_package_goes_first_where_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, checkers: str, reward: float
) -> None:
    folder = tmp_path / "verifiable_instructions"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "instructions_registry.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(tmp_path)
    server = new_server(InstructionFollowingResourcesServer, checkers=checkers)
    answer = await verified(server, asked("The sun.", to=[("x:word", {"word": "sun"})]))
    assert (answer.reward, answer.mask_sample) == (reward, checkers == "own")


async def test_the_package_is_missed_where_it_must_be() -> None:
    answer = await verified(new_server(InstructionFollowingResourcesServer, checkers="package"), asked("One two three"))
    assert (answer.mask_sample, answer.failure_kind) == (True, "verifier_error")


def test_the_config_knows_its_checkers() -> None:
    address = {"host": "h", "port": 1, "entrypoint": "app.py", "name": "n"}
    with pytest.raises(ValidationError):
        InstructionFollowingResourcesServerConfig.model_validate({**address, "checkers": "best"})
    assert not package_there("no_such_package_here") and package_there("json")
    sys.modules.setdefault("specless_for_this_test", types.ModuleType("specless_for_this_test"))
    assert not package_there("specless_for_this_test")


# --- data -------------------------------------------------------------------------------------------------------------


def test_example_rows() -> None:
    assert [row["id"] for row in check_example_rows(FOLDER)] == [1, 2, 3, 4, 5]


async def test_example_rollouts_are_still_judged_as_they_were() -> None:
    server = new_server(InstructionFollowingResourcesServer)
    await check_example_rollouts(server, FOLDER, own=["follow_instruction_list"], rewards=[0.0, 1.0, 0.0, 2 / 3, 1.0])


def test_published_rows_become_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    published = {
        "id": 7,
        "responses_create_params": {"input": [{"role": "user", "content": "Write."}]},
        **task(WORDS, COMMA),
        "dataset": "d",
        "grading_mode": None,
    }
    monkeypatch.setattr("nemo_gym.data_preparation.hub_rows", lambda repository, split: iter([published] * 3))
    path = prepare.prepare(output=tmp_path / "train.jsonl", limit=2)
    rows = rows_of(path)
    assert len(rows) == 2 and rows[0] == {key: value for key, value in published.items() if key != "grading_mode"}
    schema = load_task_data_schema(FOLDER)
    assert schema is not None
    schema.validate_python({key: value for key, value in rows[0].items() if key != "responses_create_params"})


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"kwargs": None}, "kwargs"),
        ({"instruction_id_list": None}, "instruction_id_list"),
        ({"responses_create_params": None, "prompt": None}, "prompt"),
        ({"kwargs": "[{"}, "no JSON"),
    ],
)
def test_published_rows_that_can_not_be_used(changed: dict[str, Any], complaint: str) -> None:
    with pytest.raises(PreparationError, match=f"Row 4 .*{complaint}"):
        prepare.as_row({"id": 1, **task(COMMA), **changed}, 4)


def test_published_rows_may_be_texts_and_nested() -> None:
    nested_task = {"verifier_metadata": '{"instruction_id_list": ["a:b"], "kwargs": "[{}]", "prompt": "Hi"}'}
    assert prepare.as_row(nested_task, 4) == {
        "responses_create_params": {"input": [{"role": "user", "content": "Hi"}]},
        "id": 4,
        "instruction_id_list": ["a:b"],
        "prompt": "Hi",
        "kwargs": [{}],
    }
