from pathlib import Path

import pytest

from nemo_gym.results.blocks import read_blocks
from nemo_gym.rollouts import rows
from nemo_gym.rollouts.errors import RowError
from nemo_gym.rollouts.rows import object_at, objects, objects_at, read_rows


def write(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    return path


def test_blank_lines_bom_and_crlf_are_fine_and_numbers_are_those_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, b'\xef\xbb\xbf{"a":1}\r\n\r\n   \n{"a":2}')
    assert [(row.number, row.fields, row.text) for row in read_rows(path)] == [
        (1, {"a": 1}, b'{"a":1}'),
        (4, {"a": 2}, b'{"a":2}'),
    ]


def test_a_malformed_line_is_named_by_file_line_and_column(tmp_path: Path) -> None:
    path = write(tmp_path, b'{"a":1}\n\n{"a":1,}\n')
    with pytest.raises(RowError, match=r"rows\.jsonl' at line 3, column 7"):
        list(read_rows(path))


@pytest.mark.parametrize(
    ("line", "kind"),
    [(b"[1]", "a list"), (b"3", "a number"), (b'"x"', "a string"), (b"null", "null"), (b"true", "a boolean")],
)
def test_a_row_that_is_no_object_is_refused(tmp_path: Path, line: bytes, kind: str) -> None:
    path = write(tmp_path, b'{"a":1}\n' + line + b"\n")
    with pytest.raises(RowError, match=f"line 2 is {kind}, not an object"):
        list(read_rows(path))


@pytest.mark.parametrize("content", [b"", b"\n \r\n\n"])
def test_an_empty_file_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(RowError, match=r"rows\.jsonl has no rows: write one JSON object a line"):
        list(read_rows(write(tmp_path, content)))


@pytest.mark.parametrize(("limit", "count"), [(None, 3), (0, 3), (2, 2), (9, 3)])
def test_limit_takes_the_first_rows_and_zero_means_all(tmp_path: Path, limit: int | None, count: int) -> None:
    path = write(tmp_path, b'{"a":0}\n\n{"a":1}\n{"a":2}\n')
    assert [row.fields["a"] for row in read_rows(path, limit)] == list(range(count))


def test_limit_stops_before_a_later_bad_line(tmp_path: Path) -> None:
    assert len(list(read_rows(write(tmp_path, b'{"a":0}\nnope\n'), 1))) == 1


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RowError, match=r"gone\.jsonl can't be read \(No such file or directory\)"):
        list(read_rows(tmp_path / "gone.jsonl"))


@pytest.mark.parametrize("size", [1, 9, 1 << 15])
@pytest.mark.parametrize("gap", [b"", b"\n \r\n"])
def test_objects_are_found_where_their_lines_begin(
    tmp_path: Path, size: int, gap: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "read_blocks", lambda file: read_blocks(file, size))
    path = write(tmp_path, b'{"n":0}\n' + gap + b'{"n":1}\r\n{"n":2}\n{"n":3}')
    found = list(objects_at(path))
    assert [row["n"] for _, row in found] == [0, 1, 2, 3]
    with path.open("rb") as file:
        assert [object_at(file, offset, path) for offset, _ in found] == [row for _, row in found]
    for count, (end, _) in enumerate(found):
        assert list(objects_at(path, end)) == found[:count]
        assert list(objects_at(path, end + 1)) == found[: count + 1]
    assert list(objects_at(tmp_path / "gone.jsonl")) == []


@pytest.mark.parametrize("size", [1, 9, 1 << 15])
def test_an_object_that_cannot_be_read_is_named_unless_it_comes_too_late(
    tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "read_blocks", lambda file: read_blocks(file, size))
    path = write(tmp_path, b'{"n":0}\n\n{"n":1}\n{"n":\n')
    with pytest.raises(RowError, match=r"rows\.jsonl' at line 4"):
        list(objects(path))
    assert [row["n"] for row in objects(path, path.read_bytes().rindex(b"{"))] == [0, 1]
