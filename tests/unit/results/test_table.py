"""The table of numbers: what differs from record to record must not move a number to another row."""

import math
from typing import Any

import pytest

from nemo_gym.results import table as table_module
from nemo_gym.results.shapes import INTEGER, PRESENT, USAGE
from nemo_gym.results.table import Column, RolloutTable


def table_of(*records: dict[str, Any]) -> RolloutTable:
    table = RolloutTable()
    for number, record in enumerate(records):
        table.add(number, 0, record)
    table.seal()
    return table


def numbers(table: RolloutTable, name: str) -> list[float | None]:
    return [None if math.isnan(value) else value for value in table.columns[name].values]


@pytest.mark.parametrize("flush", [1, 2, 1 << 12])
def test_records_of_several_shapes_keep_their_rows(flush: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "_ROWS_PER_FLUSH", flush)
    table = table_of(
        {"reward": 1.0, "steps": 3},
        {"reward": 0, "note": "x"},
        {"steps": 4.5, "reward": 0.5},
        {},
        {"reward": 1.0, "steps": 5},
        {"passed": True, "reward": True},
    )
    assert numbers(table, "reward") == [1.0, 0.0, 0.5, None, 1.0, None]
    assert numbers(table, "steps") == [3.0, None, 4.5, None, 5.0, None]
    assert numbers(table, "passed") == [None, None, None, None, None, 1.0]
    whole = PRESENT | INTEGER
    assert list(table.columns["steps"].kinds) == [whole, 0, PRESENT, 0, whole, 0]
    assert list(table.columns) == ["reward", "steps", "passed"]


def test_what_is_no_measurement_leaves_its_row_empty() -> None:
    table = table_of({"x": 1.0, "n": 1}, {"x": math.nan, "n": 10**400}, {"x": math.inf, "n": 2**60 + 1})
    assert numbers(table, "x") == [1.0, None, None]
    assert numbers(table, "n") == [1.0, None, float(2**60)]
    assert table.columns["n"].large_integers == {2: 2**60 + 1}


def test_usage_counts_where_it_has_a_number_and_the_record_where_not() -> None:
    usage = [{"tokens": 7}, {"tokens": math.nan}, {"tokens": None}]
    table = table_of(*({"tokens": 2**60, "response": {"usage": of_one}} for of_one in usage))
    assert numbers(table, "tokens") == [7.0, float(2**60), float(2**60)]
    assert [kind & USAGE for kind in table.columns["tokens"].kinds] == [USAGE, 0, 0]
    assert set(table.columns["tokens"].large_integers) == {1, 2}


def test_a_number_of_the_usage_may_be_whole_or_not() -> None:
    table = table_of(*({"response": {"usage": {"tokens": tokens}}} for tokens in (1, 1.5, 2)))
    assert numbers(table, "tokens") == [1.0, 1.5, 2.0]
    assert [kind & INTEGER for kind in table.columns["tokens"].kinds] == [INTEGER, 0, INTEGER]


def test_more_shapes_than_are_remembered_lose_nothing() -> None:
    count = 1200
    table = table_of(*({f"field {number}": number, "reward": 1.0} for number in range(count)))
    assert numbers(table, "reward") == [1.0] * count
    assert all(table.columns[f"field {number}"].values[number] == number for number in range(count))


def test_a_row_is_put_into_its_column_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []
    put = Column.put

    def noted(self: Column, own: Any, values: Any, kind: int) -> None:
        rows.extend(own)
        put(self, own, values, kind)

    monkeypatch.setattr(table_module, "_ROWS_PER_FLUSH", 2)
    monkeypatch.setattr(Column, "put", noted)
    table_of(*({"reward": number / 2} for number in range(9)))
    assert rows == list(range(9))
