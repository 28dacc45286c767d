"""Result sets that somebody edited by hand: whoever resumes goes on or says what is wrong, and loses nothing."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import orjson
import pytest

from nemo_gym.errors import GymError
from tests.unit.rollouts.fakes import (
    FakeClient,
    FakeReply,
    Helper,
    Row,
    collection_config,
    read_jsonl,
    right,
    served,
    task,
)

FILES = ("out.jsonl", "out.jsonl.journal", "out_failures.jsonl", "out_materialized_inputs.jsonl")
ODD: tuple[Any, ...] = (None, True, -1, 2**63, 2**64 - 1, 0.5, "", "x", "1", [], [1, [2]], {}, {"a": {"b": 1}})
GARBAGE = (b"", b"{", b"[]", b"null", b"\xff\x00", b'"text"', b"1e999", b'{"a":1}{"b":2}', b"[" * 2000)
ROWS = 4
SEEDS = 40


def answer(row: Row) -> Any:
    """As a server does: what is no request is refused."""
    if row.get("number") == 1 or not isinstance(row.get("responses_create_params"), dict):
        return FakeReply(b"no", status=422)
    return right(row)


async def run(folder: Path, **fields: Any) -> FakeClient:
    rows = [] if fields else [task(f"q{number}", number=number) for number in range(ROWS)]
    config = collection_config(folder, rows, agent_name="math_agent", **fields)
    client = FakeClient(served(), answer)
    client.metrics = {"agent_metrics": {}, "key_metrics": {}, "group_level_metrics": [], "repeat_level_metrics": []}
    await Helper(client).run_from_config(config)
    return client


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container in a JSON value, with each of its keys."""
    found: list[tuple[Any, Any]] = []
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            found += [(value, key), *places(value[key])]
    return found


def with_odd_value(line: bytes, chance: random.Random) -> bytes:
    value = orjson.loads(line)
    container, key = chance.choice(places(value))
    if chance.random() < 0.2:
        del container[key]
    else:
        container[key] = chance.choice(ODD)
    return orjson.dumps(value)


def harmed(lines: list[bytes], chance: random.Random) -> list[bytes]:
    """The lines with one or two things wrong with them."""
    for _ in range(chance.choice((1, 1, 2))):
        number = chance.randrange(len(lines))
        kind = chance.choice(("odd", "odd", "odd", "odd", "garbage", "cut", "twice", "gone", "elsewhere"))
        try:
            if kind == "odd":
                lines[number] = with_odd_value(lines[number], chance)
        except (orjson.JSONDecodeError, IndexError):
            continue
        if kind == "garbage":
            lines[number] = chance.choice(GARBAGE)
        elif kind == "cut":
            lines[number] = lines[number][: chance.randrange(1 + len(lines[number]))]
        elif kind == "twice":
            lines.insert(number, lines[number])
        elif kind == "gone" and len(lines) > 1:
            del lines[number]
        elif kind == "elsewhere":
            lines.insert(0, lines.pop(number))
    return lines


def all_lines(folder: Path) -> set[bytes]:
    return {line for path in folder.glob("out.jsonl*") for line in path.read_bytes().splitlines()}


@pytest.fixture
async def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole")
    await run(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("file", FILES)
async def test_whatever_was_done_to_a_file_the_run_goes_on_or_says_why_not(
    tmp_path: Path, whole: dict[str, bytes], file: str
) -> None:
    """B53: every kind of damage by hand; never a traceback, never a record lost."""
    gone_on = 0
    for seed in range(SEEDS):
        chance = random.Random(f"{file} {seed}")
        folder = tmp_path / str(seed)
        folder.mkdir()
        for name, content in whole.items():
            (folder / name).write_bytes(content)
        lines = harmed(whole[file].splitlines(), chance)
        end = b"" if chance.random() < 0.2 else b"\n"
        (folder / file).write_bytes(b"\n".join(lines) + end)
        before = (folder / "out.jsonl").read_bytes().splitlines()
        try:
            await run(folder, resume_from_cache=True)
        except GymError as error:
            assert str(error) and "Traceback" not in str(error), seed
        except Exception as error:
            raise AssertionError(f"{file}, seed {seed}: {lines}") from error
        else:
            gone_on += 1
            assert (folder / "out_coverage.json").exists(), seed
            if file != "out.jsonl":
                keys = [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in read_jsonl(folder / "out.jsonl")]
                assert len(keys) == len(set(keys)) >= ROWS - 1, seed
        kept = all_lines(folder)
        torn = before[-1:] if not end else []
        assert not [line for line in before if line.strip() and line not in kept and line not in torn], seed
    assert gone_on > SEEDS / 4


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("run", "identity"),
        ("run", "resumed_anyway"),
        ("run", "plan"),
        ("attempt", "task"),
        ("retry", "retry"),
        ("done", "task"),
        ("done", "repeat"),
        ("done", "attempt"),
        ("done", "retries"),
        ("done", "reward"),
        ("done", "outcome"),
        ("done", "offset"),
        ("done", "length"),
        ("done", "crc"),
        ("end", "state"),
    ],
)
async def test_every_field_of_the_journal_may_hold_anything(
    tmp_path: Path, whole: dict[str, bytes], kind: str, name: str, odd: Any
) -> None:
    """B53: the records are what counts, so no entry of the journal can keep a set from being gone on with."""
    for file, content in whole.items():
        (tmp_path / file).write_bytes(content)
    path = tmp_path / "out.jsonl.journal"
    entries = [orjson.loads(line) for line in whole["out.jsonl.journal"].splitlines()]
    entries.insert(1, {"kind": "retry", "task": 0, "repeat": 0, "retry": 1})
    path.write_bytes(
        b"".join(
            orjson.dumps({**entry, name: odd} if entry["kind"] == kind else entry, option=orjson.OPT_APPEND_NEWLINE)
            for entry in entries
        )
    )
    client = await run(tmp_path, resume_from_cache=True)
    assert [row["number"] for row in client.runs] == [1]
    assert (tmp_path / "out.jsonl").read_bytes() == whole["out.jsonl"]
