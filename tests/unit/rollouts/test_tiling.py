"""Whether a file of records is what the journal says: anything else is read as a whole."""

from pathlib import Path
from typing import Any
from zlib import crc32

import orjson
import pytest

from nemo_gym.rollouts import journal
from nemo_gym.rollouts import resume as resuming
from nemo_gym.rollouts.journal import Completion, done_entry
from nemo_gym.rollouts.outputs import ResultSet
from nemo_gym.rollouts.resume import ResumeOptions, read_state
from nemo_gym.rollouts.rows import objects_at
from nemo_gym.rollouts.tiling import Tiling

Line = dict[str, Any]
KEYS = [(0, 0), (0, 1), (12, 0)]


def line_of(task: int, repeat: int) -> bytes:
    return orjson.dumps({"_ng_task_index": task, "_ng_rollout_index": repeat, "reward": 1.0, "text": "é"}) + b"\n"


LINES = [line_of(*key) for key in KEYS]


def entries(lines: list[bytes] = LINES) -> list[Line]:
    found, offset = [], 0
    for (task, repeat), line in zip(KEYS, lines, strict=True):
        found.append({"task": task, "repeat": repeat, "offset": offset, "length": len(line), "crc": crc32(line)})
        offset += len(line)
    return found


def tiles(folder: Path, content: bytes, said: list[Line]) -> bool:
    path = folder / "out.jsonl"
    path.write_bytes(content)
    tiling = Tiling(path)
    tiling.follow(said[:1])
    tiling.follow(said[1:])
    return tiling.close()


def test_entries_of_all_records_tile_the_file(tmp_path: Path) -> None:
    assert tiles(tmp_path, b"".join(LINES), entries())
    assert tiles(tmp_path, b"", [])


def test_a_key_in_another_form_is_found_too(tmp_path: Path) -> None:
    turned = [b'{"_ng_rollout_index": %d, "x": 1, "_ng_task_index": %d}\n' % (repeat, task) for task, repeat in KEYS]
    assert tiles(tmp_path, b"".join(turned), entries(turned))


@pytest.mark.parametrize(
    "content",
    [
        b"".join(LINES[:2]),
        b"".join(LINES) + LINES[0],
        b"".join(LINES)[:-1],
        LINES[0] + LINES[0] + LINES[2],
        LINES[1] + LINES[0] + LINES[2],
        LINES[0] + b"\n" + LINES[1][1:] + LINES[2],
        LINES[0] + LINES[1][:9] + b"\n" + LINES[1][10:] + LINES[2],
        LINES[0] + b'{"_ng_task_index":0,"_ng_rollout_index":1,'.ljust(len(LINES[1]) - 1) + b"\n" + LINES[2],
        LINES[0] + b"[" + LINES[1][1:] + LINES[2],
    ],
)
def test_any_other_content_does_not(tmp_path: Path, content: bytes) -> None:
    assert not tiles(tmp_path, content, entries())


@pytest.mark.parametrize("change", [{"offset": 1}, {"length": None}, {"length": 0}, {"task": 5}, {"repeat": 0}])
def test_nor_do_any_other_entries(tmp_path: Path, change: Line) -> None:
    first, second, third = entries()
    assert not tiles(tmp_path, b"".join(LINES), [first, {**second, **change}, third])
    assert not tiles(tmp_path, b"".join(LINES), [first, third])
    assert not Tiling(tmp_path / "gone.jsonl").close()


def test_one_byte_that_changed_is_noticed_though_the_key_is_there(tmp_path: Path) -> None:
    changed = LINES[1].replace(b"1.0", b"1;0")
    assert not tiles(tmp_path, LINES[0] + changed + LINES[2], entries())
    without_sums = [{name: value for name, value in entry.items() if name != "crc"} for entry in entries()]
    assert not tiles(tmp_path, LINES[0] + changed + LINES[2], without_sums)
    assert tiles(tmp_path, b"".join(LINES), without_sums)


@pytest.mark.parametrize("is_whole", [True, False])
def test_records_are_only_parsed_where_the_journal_does_not_fit(
    tmp_path: Path, is_whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = ResultSet(tmp_path / "out.jsonl")
    results.output.write_bytes(b"".join(LINES if is_whole else LINES[:2]))
    said = [{"kind": "done", "outcome": "measured", "attempt": 0, "reward": 1.0, **entry} for entry in entries()]
    results.journal.write_bytes(b"".join(orjson.dumps(entry) + b"\n" for entry in said))
    results.materialized.write_bytes(b"".join(LINES) + line_of(13, 0))
    parsed: list[Path] = []

    def noted(path: Path, end: int | None = None) -> Any:
        parsed.append(path)
        return objects_at(path, end)

    monkeypatch.setattr(resuming, "objects_at", noted)
    state = read_state(results, ResumeOptions())
    assert (results.output in parsed) is not is_whole
    assert state.planned == 4 and len(state.measured) == (3 if is_whole else 2)
    assert len(state.left) == (1 if is_whole else 2)


def test_an_entry_says_the_check_sum_of_its_line_with_the_end() -> None:
    entry = done_entry(Completion(0, 0, 0, "measured"), LINES[0][:-1], 0)
    assert (entry["crc"], entry["length"]) == (crc32(LINES[0]), len(LINES[0]))


@pytest.mark.parametrize("read_bytes", [1, 15, 1 << 16])
def test_damaged_lines_of_a_journal_keep_their_numbers(
    tmp_path: Path, read_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines read together are judged one by one: two halves of an object are no entry, whole ones all are."""
    monkeypatch.setattr(journal, "_READ_BYTES", read_bytes)
    path = tmp_path / "journal"
    path.write_bytes(b'{"kind":"a"}\n\n{"kind":"b"}\n{"kind":[1\n2]}\n{"kind":"c"}\n7\n')
    damaged: list[int] = []
    assert [entry["kind"] for entry in journal.read_journal(path, damaged.append)] == ["a", "b", "c"]
    assert damaged == [4, 5, 7]
    path.write_bytes(b'{"kind":[1\n2]}\n')
    assert list(journal.read_journal(path)) == []


@pytest.mark.parametrize("read_bytes", [1, 40, 1 << 16])
def test_runs_are_found_wherever_they_stand(tmp_path: Path, read_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "_READ_BYTES", read_bytes)
    path = tmp_path / "journal"
    inside = b'{"kind":"done","text":"{\\"kind\\":\\"run\\"}"}\n'
    path.write_bytes(b'{"kind":"run","n":1}\n' + inside + b'{"kind":"run","n":2}\n{"kind":"run","n":3}')
    assert [entry["n"] for entry in journal.run_entries(path)] == [1, 2, 3]
    path.write_bytes(inside)
    assert journal.run_entries(path) == []
    path.write_bytes(b"")
    assert journal.run_entries(path) == []


def test_a_row_that_the_plan_has_twice_is_one_rollout(tmp_path: Path) -> None:
    results = ResultSet(tmp_path / "out.jsonl")
    results.output.touch()
    results.materialized.write_bytes(b"".join([*LINES, LINES[1], line_of(13, 0)]))
    state = read_state(results, ResumeOptions())
    assert (state.planned, len(state.left)) == (4, 4)
