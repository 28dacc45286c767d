from __future__ import annotations

import asyncio
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from environments.arc_agi import prepare
from nemo_gym.data_preparation import PreparationError
from nemo_gym.testing.responses import reasoning, response, verify_request
from nemo_gym.testing.verdicts import (
    Case,
    check_case,
    check_example_rollouts,
    check_example_rows,
    new_server,
    rows_of,
    verified,
)
from resources_servers.arc_agi.app import ARCAGIResourcesServer, ARCAGIVerifyRequest, _parse_grid
from resources_servers.arc_agi.grids import Grid, last_boxed_grid
from resources_servers.arc_agi.prompts import prompt

FOLDER = Path(__file__).parents[1]
GRID = [[1, 0], [0, 2]]
OTHER = [[1, 0], [0, 3]]
ROW = {
    "train": [{"input": [[1]], "output": [[2]]}],
    "test_input": [[3, 4]],
    "expected_output": GRID,
    "task_id": "t",
}


def asked(*output: Any, **fields: Any) -> dict[str, Any]:
    return verify_request({**ROW, **fields}, *output)


BOX = rf"\boxed{{{GRID}}}"
NONE = {"predicted_output": None, "extraction_successful": False}
LAST = {"last_box_only": True}

CASES = [
    Case("in a box", asked(f"So {BOX}."), 1.0,
         own={"predicted_output": GRID, "extraction_successful": True, "expected_output": GRID}),
    Case("another one", asked(rf"\boxed{{{OTHER}}}"), 0.0, own={"predicted_output": OTHER}),
    Case("without spaces", asked(r"\boxed{[[1,0],[0,2]]}"), 1.0),
    Case("over lines", asked("\\boxed{\n[\n  [1, 0],\n  [0, 2]\n]\n}"), 1.0),
    Case("bare", asked(f"```\n{GRID}\n```"), 1.0),
    Case("bare over lines", asked("[[1, 0],\n [0, 2]]"), 1.0),
    Case("the first box", asked(f"{BOX} or \\boxed{{{OTHER}}}"), 1.0),
    Case("also when it is wrong", asked(f"\\boxed{{{OTHER}}} or {BOX}"), 0.0),
    Case("the first bare one", asked(f"{GRID} {OTHER}"), 1.0),
    Case("a box goes before", asked(f"{OTHER} {BOX}"), 1.0),
    Case("a box that can't be read goes before too", asked(rf"{GRID} \boxed{{[[1, 0], [0,, 2]]}}"), 0.0, own=NONE),
    Case("a box without a grid doesn't", asked(rf"{GRID} \boxed{{the rule}}"), 1.0),
    Case("the next box that can be read", asked(rf"\boxed{{[[01]]}} {BOX}"), 1.0),
    Case("the next bare one that can be read", asked(f"[[1,,0]] {GRID}"), 1.0),
    Case("over two messages", asked("[[1, 0],", "[0, 2]]"), 1.0),
    Case("a row less", asked("[[1, 0]]"), 0.0),
    Case("a cell more", asked("[[1, 0], [0, 2, 0]]"), 0.0),
    Case("turned", asked("[[1, 0], [2, 0]]"), 0.0),
    Case("text", asked('[["1", "0"], ["0", "2"]]'), 0.0, own=NONE),
    Case("negative", asked("[[-1, 0], [0, 2]]"), 0.0, own=NONE),
    Case("fractions", asked("[[1.0, 0], [0, 2]]"), 0.0, own=NONE),
    Case("three deep", asked(rf"\boxed{{[{GRID}]}}"), 0.0, own=NONE),
    Case("a flat list", asked(r"\boxed{[1, 0, 0, 2]}"), 0.0, own=NONE),
    Case("not what is thought", asked(reasoning(BOX)), 0.0, own=NONE),
    Case("not what others say", asked({"type": "message", "role": "user", "content": BOX}), 0.0, own=NONE),
    Case("nothing", asked(), 0.0, own=NONE),
    Case("empty", asked(""), 0.0, own=NONE),
    Case("no grid expected", asked("[[]]", expected_output=[]), 0.0, own=NONE),
    Case("an empty list", asked(r"\boxed{[]}", expected_output=[]), 0.0, own=NONE),
    Case("an empty row", asked(r"\boxed{[[], [1]]}", expected_output=[[], [1]]), 0.0, own=NONE),
    Case("the prompt", asked(prompt(ROW["train"], ROW["test_input"])), 0.0),  # type: ignore[arg-type]
    Case("the last box", asked(f"\\boxed{{{OTHER}}} or {BOX}"), 1.0, settings=LAST),
    Case("not the first", asked(f"{BOX} or \\boxed{{{OTHER}}}"), 0.0, settings=LAST),
    Case("nor a bare one", asked(str(GRID)), 0.0, own=NONE, settings=LAST),
    Case("nor one after it", asked(rf"{BOX} \boxed{{?}}"), 0.0, own=NONE, settings=LAST),
    Case("brackets without end", asked("[" * 200_000), 0.0, own=NONE),
    Case("in a box", asked("\\boxed{" + "[" * 200_000 + "}"), 0.0, own=NONE),
    Case("nested without end", asked("\\boxed{" + "[" * 100_000 + "]" * 100_000 + "}"), 0.0, own=NONE),
    Case("bare", asked("[" * 100_000 + "]" * 100_000), 0.0, own=NONE),
    Case("many lists that are none", asked("[[,]] " * 30_000), 0.0, own=NONE),
    Case("spaces without end", asked("[[" + " " * 200_000), 0.0, own=NONE),
    Case("a number without end", asked("[[" + "1" * 100_000 + "]]"), 0.0, own=NONE),
    Case("other digits", asked("[[\u0661, \u0660], [\u0660, \u0662]]"), 0.0, own=NONE),
    Case("odd characters", asked("\\boxed{\x00\u202e\ufffd\U0001d7dc}"), 0.0, own=NONE),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_rewards(case: Case) -> None:
    async with asyncio.timeout(20):
        await check_case(new_server(ARCAGIResourcesServer, **case.settings), case)


async def test_a_correct_grid_that_is_changed_never_scores() -> None:
    """B83"""
    server = new_server(ARCAGIResourcesServer)
    changes: list[Grid] = [[[1, 0]], [[1, 0], [0, 2], [0, 0]], [[0, 1], [0, 2]], [[0, 2], [1, 0]]]
    changes += [[[1, 0], [0, number]] for number in range(10) if number != 2]
    for changed in changes:
        assert (await verified(server, asked(rf"\boxed{{{changed}}}"))).reward == 0.0, changed


def test_names_that_others_import() -> None:
    assert _parse_grid(BOX) == GRID
    assert _parse_grid("none") is None
    assert last_boxed_grid("none") is None


def test_over_http() -> None:
    with TestClient(new_server(ARCAGIResourcesServer).setup_webserver()) as client:
        record = client.post("/verify", json=asked(BOX)).json()
        bare = client.post("/verify", json={**verify_request({}, BOX)}).json()
        assert client.post("/verify", json=asked(BOX, expected_output=[["x"]])).status_code == 422
        assert client.get("/reverify_mode").json() == "stateless"
    assert {name: record[name] for name in ROW} == ROW
    assert (record["reward"], record["failure_kind"]) == (1.0, None)
    assert (bare["reward"], bare["expected_output"], bare["predicted_output"]) == (0.0, [], GRID)


def test_example_rows() -> None:
    for row in check_example_rows(FOLDER):
        ARCAGIVerifyRequest.model_validate(row | {"response": response("x")})
        assert row["responses_create_params"]["input"][0]["content"] == prompt(row["train"], row["test_input"])


async def test_example_rollouts_are_still_judged_as_they_were() -> None:
    own = ["predicted_output", "extraction_successful", "expected_output", "task_id"]
    await check_example_rollouts(new_server(ARCAGIResourcesServer), FOLDER, own=own, rewards=[1.0, 1.0, 0.0, 1.0, 0.0])


# --- the published puzzles --------------------------------------------------------------------------------------------


def zipped(**files: Any) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, value in files.items():
            archive.writestr(name, value if isinstance(value, str) else json.dumps(value))
    return content.getvalue()


PUZZLE = {"train": [{"input": [[1]], "output": [[2]]}], "test": [{"input": [[3]], "output": [[4]]}] * 2}


def test_rows_of_published_puzzles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    places = ("r/data/training/b.json", "r/data/training/a.json", "r/data/evaluation/c.json", "r/data/training/x.txt")
    content = zipped(**dict.fromkeys((*places, "r/apps/training/d.json"), PUZZLE))
    monkeypatch.setattr(prepare, "archive", lambda: content)
    written = rows_of(prepare.prepare("train", tmp_path / "train.jsonl"))
    assert [row["task_id"] for row in written] == ["a-0", "a-1", "b-0", "b-1"]
    assert [row["task_id"] for row in prepare.rows(content, "validation")] == ["c-0", "c-1"]
    assert (written[0]["train"], written[0]["test_input"], written[0]["expected_output"]) == (
        PUZZLE["train"],
        [[3]],
        [[4]],
    )
    assert len(rows_of(prepare.prepare("train", tmp_path / "few.jsonl", 3))) == 3


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"no zip", "is no zip file"),
        (zipped(**{"r/data/training/a.json": "no JSON"}), "a.json is no puzzle"),
        (zipped(**{"r/data/training/a.json": {"train": []}}), "a.json is no puzzle"),
        (zipped(**{"r/data/training/a.json": {"train": [], "test": [{}]}}), "a.json is no puzzle"),
        (zipped(), "no rows"),
    ],
)
def test_puzzles_that_can_not_be_used(content: bytes, complaint: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(prepare, "archive", lambda: content)
    with pytest.raises(PreparationError, match=complaint):
        prepare.prepare("train", tmp_path / "train.jsonl")
