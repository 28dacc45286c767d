from __future__ import annotations

from pathlib import Path

from environments.blackjack.prepare import prepare
from nemo_gym.testing.verdicts import rows_of


def test_each_row_has_a_seed_of_its_own(tmp_path: Path) -> None:
    rows = rows_of(prepare(output=tmp_path / "rows.jsonl", limit=3))
    assert [row["seed"] for row in rows] == [0, 1, 2]
    assert all("<action>hit</action>" in row["responses_create_params"]["input"][0]["content"] for row in rows)
