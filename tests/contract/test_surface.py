"""Every name that components of 0.7 import exists here, with the shape they rely on."""

from pathlib import Path

import pytest

from tests.contract.differences import differences
from tests.contract.surface import Row, rows

PENDING = {
    line.strip()
    for line in Path(__file__).with_name("pending.txt").read_text(encoding="utf-8").splitlines()
    if line.strip() and not line.startswith("#")
}


@pytest.mark.parametrize("row", [row for row in rows() if row.id not in PENDING], ids=lambda row: row.id)
def test_name_has_the_shape_components_rely_on(row: Row) -> None:
    assert differences(row) == []


def test_pending_names_are_still_pending() -> None:
    """Keeps pending.txt honest: a name that has become right must leave it."""
    assert [row.id for row in rows() if row.id in PENDING and not differences(row)] == []


def test_pending_names_are_rows() -> None:
    assert {row.id for row in rows()} >= PENDING
