"""Lines read many at a time: whatever stands on them, each is known by its own number and place."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import pytest

from nemo_gym.results import jsonl
from nemo_gym.results.blocks import lines_of, offsets_of, read_blocks
from nemo_gym.results.errors import ResultsFileError
from nemo_gym.results.jsonl import JsonLines

SIZES = [1, 9, 1 << 15]
CONTENT = b'{"n":1}\n{"n":2,"text":"a\\nb\xe2\x80\xa8c\\r"}\r\n{"n":3}\n{"n":4}'


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("content", [CONTENT, CONTENT + b"\n", b"", b'{"n":1}'])
def test_blocks_are_whole_lines_and_the_objects_on_them(content: bytes, size: int) -> None:
    found = list(read_blocks(BytesIO(content), size))
    assert b"".join(block.text for block in found) == content
    assert [block.lines for block in found] == [len(lines_of(block.text)) for block in found]
    assert all(block.text.endswith(b"\n") for block in found[:-1])
    numbers = [entry["n"] for block in found for entry in block.objects or ()]
    assert numbers == list(range(1, 1 + len(content.splitlines())))[: len(numbers)]
    assert len(numbers) == sum(block.lines for block in found)


@pytest.mark.parametrize(
    "odd",
    [
        b"\n",
        b" \n",
        b"[1]\n",
        b"{\n",
        b'{"n":1},{"n":2}\n',
        b'{"n":[1\n2]}\n',
        b'{"n":"a\nb"}\n',
        b'{"n":1,\n"m":2}\n',
        b"\xff\n",
    ],
)
def test_a_block_with_any_other_line_has_no_objects(odd: bytes) -> None:
    (block,) = read_blocks(BytesIO(CONTENT + b"\n" + odd + CONTENT))
    assert block.objects is None
    assert block.lines == len(lines_of(block.text)) == 8 + odd.count(b"\n")


def test_offsets_are_where_lines_begin_and_then_where_they_end() -> None:
    lines = lines_of(CONTENT)
    offsets = offsets_of(lines, 7)
    assert offsets[-1] == 7 + len(CONTENT)
    assert [CONTENT[begin - 7 :].startswith(line) for begin, line in zip(offsets, lines, strict=False)] == [True] * 4


@pytest.fixture(params=SIZES)
def source(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> JsonLines:
    size: int = request.param
    monkeypatch.setattr(jsonl, "read_blocks", lambda file: read_blocks(file, size))
    return JsonLines(tmp_path / "records.jsonl", "--flag")


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("gap", [b"", b"\n  \r\n"])
def test_every_record_keeps_its_number_and_its_place(source: JsonLines, mark: bytes, gap: bytes) -> None:
    content = mark + CONTENT + b"\n" + gap + CONTENT
    source.path.write_bytes(content)
    found = [place for block in source.blocks() for place in zip(block.offsets(), block.records, strict=True)]
    with source.random_access() as record_at:
        assert [record_at(offset) for offset, _ in found] == [record for _, record in found]
    assert [record["n"] for _, record in found] == [1, 2, 3, 4] * 2
    after = 5 + gap.count(b"\n")
    assert [line.number for line in source] == [1, 2, 3, 4, *range(after, after + 4)]


def test_what_stands_before_a_bad_line_is_read_first(source: JsonLines) -> None:
    source.path.write_bytes(CONTENT + b"\n\n{\n" + CONTENT)
    lines = iter(source)
    assert [next(lines).record["n"] for _ in range(4)] == [1, 2, 3, 4]
    with pytest.raises(ResultsFileError, match=r"records\.jsonl:6 \(--flag\): malformed JSON"):
        next(lines)


def test_a_value_error_names_the_line_of_its_record(source: JsonLines) -> None:
    def halves(record: dict[str, int]) -> int:
        if record["n"] == 3:
            raise ValueError("three is odd")
        return record["n"]

    source.path.write_bytes(CONTENT)
    with pytest.raises(ResultsFileError, match=r"records\.jsonl:3 \(--flag\): three is odd"):
        [block.read(halves) for block in source.blocks()]
