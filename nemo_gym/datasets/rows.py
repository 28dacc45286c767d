"""Reading the rows of data sets, and what collation makes of each."""

from __future__ import annotations

import codecs
import json
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nemo_gym.config.dataset_entries import BenchmarkDatasetConfig
from nemo_gym.config.keys import (
    AGENT_REF_KEY_NAME,
    ATTEMPT_INDEX_KEY_NAME,
    RESPONSES_CREATE_PARAMS_KEY_NAME,
    ROLLOUT_ID_KEY_NAME,
    ROLLOUT_INDEX_KEY_NAME,
    TASK_INDEX_KEY_NAME,
    TASK_SOURCE_KEY_NAME,
)
from nemo_gym.config.prompts import PromptConfig, apply_prompt_to_row, load_prompt_config
from nemo_gym.config.task_materialization import materialize_task
from nemo_gym.datasets.declared import DeclaredDataset
from nemo_gym.datasets.errors import DatasetError

_IDENTITY_KEYS = (TASK_INDEX_KEY_NAME, ROLLOUT_INDEX_KEY_NAME, ROLLOUT_ID_KEY_NAME, ATTEMPT_INDEX_KEY_NAME)


def lines_of(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines that aren't blank, with their numbers from 1; a byte order mark and CRLF line ends are left out."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if text := (line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).strip():
                yield number, text


def row_on(line: bytes, path: Path, number: int) -> dict[str, Any]:
    """The object on a line. Raises DatasetError naming file and line."""
    try:
        row = json.loads(line)
    except ValueError as error:
        raise DatasetError(f"Malformed JSON in '{path}' at line {number}: {error}.") from error
    if not isinstance(row, dict):
        raise DatasetError(f"'{path}' line {number} is not an object: every line must be one JSON object.")
    return row


class RowConverter:
    """Turns the rows of one data set into collated ones: prompt filled, source named, task materialised."""

    def __init__(self, dataset: DeclaredDataset) -> None:
        self._dataset = dataset
        self._prompt = _prompt_of(dataset)
        self._dropped_agents = 0

    def convert(self, row: Mapping[str, Any], place: str, task_index: int) -> dict[str, Any]:
        """The collated row; `task_index` counts the source rows of the split. Raises DatasetError naming the place."""
        prompted = self.prompted(row, place)
        if prompted.pop(AGENT_REF_KEY_NAME, None) is not None:
            self._dropped_agents += 1
        prompted[TASK_SOURCE_KEY_NAME] = self._dataset.instance.name
        taskset = self._dataset.entry.taskset
        return prompted if taskset is None else self._task(prompted, taskset, place, task_index)

    def warn_of_dropped_agents(self) -> None:
        """Say how many rows named an agent of their own, which their data set's declaration replaces."""
        if self._dropped_agents:
            warnings.warn(
                f"{self._dataset.path}: agent_ref was dropped from {self._dropped_agents} rows; the config that "
                "declares a data set decides who answers it",
                DeprecationWarning,
                stacklevel=2,
            )

    def prompted(self, row: Mapping[str, Any], place: str) -> dict[str, Any]:
        """The row with the data set's prompt filled in, when it has one; a copy in any case."""
        if self._prompt is None:
            return dict(row)
        params = row.get(RESPONSES_CREATE_PARAMS_KEY_NAME)
        if isinstance(params, Mapping) and params.get("input"):
            raise DatasetError(f"{place}: the data set has a prompt_config, but the row brings an input of its own.")
        try:
            return apply_prompt_to_row(row, self._prompt)
        except KeyError as error:
            raise DatasetError(f"{place}: {error.args[0]}") from error

    def _task(self, row: dict[str, Any], taskset: str, place: str, task_index: int) -> dict[str, Any]:
        try:
            task = materialize_task(row, taskset=taskset, task_index=task_index)
        except ValueError as error:
            raise DatasetError(f"{place}: {error}") from error
        return {**task, **{key: row[key] for key in _IDENTITY_KEYS if key in row}}


def _prompt_of(dataset: DeclaredDataset) -> PromptConfig | None:
    entry = dataset.entry
    if not isinstance(entry, BenchmarkDatasetConfig) or entry.prompt_config is None:
        return None
    return load_prompt_config(str(entry.prompt_config))
