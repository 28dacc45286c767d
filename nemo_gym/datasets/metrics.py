"""What a data set measures: sizes, turns, and a summary of every field its rows carry."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nemo_gym.config.keys import AGENT_REF_KEY_NAME, RESPONSES_CREATE_PARAMS_KEY_NAME, TASK_SOURCE_KEY_NAME
from nemo_gym.datasets.errors import DatasetError
from nemo_gym.datasets.statistics import LabelStatistics, NumberStatistics, TextStatistics

EXAMPLES = "Number of examples"
TASKS = "Number of tasks"
TASK_WORDS = "Json-dumped task-input words (proxy for token count)"
TOOLS = "Number of tools"
WORDS = "Json-dumped number of words (proxy for token count)"
TURNS = "Number of turns"
TEMPERATURE = "Temperature"
TASKSETS = "Tasksets"
FRAMEWORK_NAMES = frozenset({EXAMPLES, TASKS, TASK_WORDS, TOOLS, WORDS, TURNS, TEMPERATURE, TASKSETS})

_NOT_MEASURED = frozenset({RESPONSES_CREATE_PARAMS_KEY_NAME, AGENT_REF_KEY_NAME, TASK_SOURCE_KEY_NAME})

MetricValue = bool | int | float | str | None
TaskMetrics = Mapping[str, MetricValue | list[MetricValue]]
"""What a server's `compute_task_metrics` returns for one task."""


@dataclass
class DatasetMetrics:
    """Figures over the rows of one or several data sets."""

    examples: int = 0
    tasks: int = 0
    tools: NumberStatistics = field(default_factory=NumberStatistics)
    words: NumberStatistics = field(default_factory=NumberStatistics)
    turns: NumberStatistics = field(default_factory=NumberStatistics)
    temperature: NumberStatistics = field(default_factory=NumberStatistics)
    task_words: NumberStatistics = field(default_factory=NumberStatistics)
    tasksets: LabelStatistics = field(default_factory=LabelStatistics)
    fields: dict[str, NumberStatistics | TextStatistics | LabelStatistics] = field(default_factory=dict)

    def observe_row(self, row: Mapping[str, Any]) -> None:
        """Count a flat row, and its request when it is an object."""
        self.examples += 1
        params = row.get(RESPONSES_CREATE_PARAMS_KEY_NAME)
        if isinstance(params, Mapping):
            self._observe_request(params)
        for name, value in row.items():
            if name not in _NOT_MEASURED:
                for item in value if isinstance(value, list) else [value]:
                    self._observe_field(name, item)

    def observe_task(self, taskset: str, task_input: Mapping[str, Any], measured: TaskMetrics) -> None:
        """Count a task of a task set, with what its server's own hook measured."""
        self.examples += 1
        self.tasks += 1
        self.task_words.observe(_words(task_input))
        self.tasksets.observe(taskset)
        for name, value in measured.items():
            for item in value if isinstance(value, list) else [value]:
                self._observe_hook_value(name, item)

    def merge(self, other: DatasetMetrics) -> None:
        """Add the figures of another data set."""
        self.examples += other.examples
        self.tasks += other.tasks
        for name in ("tools", "words", "turns", "temperature", "task_words", "tasksets"):
            getattr(self, name).merge(getattr(other, name))
        for name, figures in other.fields.items():
            self._field(name, type(figures)).merge(figures)

    def to_json(self) -> dict[str, Any]:
        """The figures under their display names."""
        figures: dict[str, Any] = {EXAMPLES: self.examples}
        if self.tasks:
            figures |= {TASKS: self.tasks, TASK_WORDS: self.task_words.to_json(), TASKSETS: self.tasksets.to_json()}
        figures |= {
            TOOLS: self.tools.to_json(),
            WORDS: self.words.to_json(),
            TURNS: self.turns.to_json(),
            TEMPERATURE: self.temperature.to_json(),
        }
        return figures | {name: summary.to_json() for name, summary in self.fields.items()}

    def _observe_request(self, params: Mapping[str, Any]) -> None:
        if params.get("tools"):
            self.tools.observe(len(params["tools"]))
        self.words.observe(_words(params))
        self.turns.observe(_user_turns(params.get("input")))
        temperature = params.get("temperature")
        if isinstance(temperature, int | float) and not isinstance(temperature, bool):
            self.temperature.observe(temperature)

    def _observe_field(self, name: str, value: object) -> None:
        if isinstance(value, int | float):
            self._field(name, NumberStatistics).observe(float(value))
        elif isinstance(value, str):
            self._field(name, TextStatistics).observe(value)

    def _observe_hook_value(self, name: str, value: MetricValue) -> None:
        if isinstance(value, str):
            self._field(name, LabelStatistics, strict=True).observe(value)
        elif value is not None:
            self._field(name, NumberStatistics, strict=True).observe(float(value))

    def _field(self, name: str, kind: type[Any], *, strict: bool = False) -> Any:
        """The figures of a field. One that mixes numbers and texts keeps what it began with, or is refused."""
        found = self.fields.setdefault(name, kind())
        if isinstance(found, kind):
            return found
        if strict:
            raise DatasetError(f"compute_task_metrics mixes numbers and texts under {name!r}: give it one kind.")
        return kind()


def _words(value: Mapping[str, Any]) -> int:
    return len(json.dumps(value).split())


def _user_turns(model_input: object) -> int:
    if isinstance(model_input, str):
        return 1
    items = model_input if isinstance(model_input, list) else []
    return sum(isinstance(item, Mapping) and item.get("role") == "user" for item in items)
