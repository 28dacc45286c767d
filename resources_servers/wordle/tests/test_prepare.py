from __future__ import annotations

from pathlib import Path

import pytest

from environments.wordle.prepare import prepare
from nemo_gym.testing.verdicts import rows_of
from resources_servers.wordle.task_data import TaskData


@pytest.mark.parametrize(("split", "count"), [("train", 4), ("validation", 2)])
def test_rows_of_a_split(tmp_path: Path, split: str, count: int) -> None:
    rows = rows_of(prepare(split, tmp_path / "rows.jsonl", limit=count))
    assert len({TaskData.model_validate(row).custom_target for row in rows}) == len(rows) == count


def test_no_target_is_in_both_splits(tmp_path: Path) -> None:
    train, validation = (
        {row["custom_target"] for row in rows_of(prepare(split, tmp_path / f"{split}.jsonl"))}
        for split in ("train", "validation")
    )
    assert train and validation and train.isdisjoint(validation)
