"""Whether rows are what servers can run: the shared request, and each server's own schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ValidationError

from nemo_gym.config.entries import implementation_blocks, reference_name
from nemo_gym.config.interpolations import tolerantly_resolved
from nemo_gym.config.keys import RESOURCES_SERVERS
from nemo_gym.config.notices import warn
from nemo_gym.config.task_data import TaskDataSchemaError, TaskDataValidator, find_server_dir, load_task_data_schema
from nemo_gym.datasets.declared import DeclaredDataset
from nemo_gym.datasets.errors import DatasetError
from nemo_gym.schema.episodes import TaskId
from nemo_gym.schema.requests import NeMoGymResponseCreateParamsNonStreaming

if TYPE_CHECKING:
    from omegaconf import DictConfig

_SHOWN = 5


class _RunRequest(BaseModel):
    """What any agent needs of a flat row."""

    responses_create_params: NeMoGymResponseCreateParamsNonStreaming


@dataclass
class OffendingRows:
    """Rows of one data set that no server could run: how many, and why the first few of them can't."""

    path: Path
    count: int = 0
    reasons: list[str] = field(default_factory=list)

    def add(self, number: int, reason: str) -> None:
        self.count += 1
        if len(self.reasons) < _SHOWN:
            self.reasons.append(f"{self.path}, line {number}: {reason}")

    def report(self) -> str | None:
        """The reasons, a line each; None when every row is fine."""
        if not self.count:
            return None
        more = [f"and {self.count - len(self.reasons)} more"] if self.count > len(self.reasons) else []
        lines = [f"{self.count} rows are left out of the metrics, for no server can run them:", *self.reasons, *more]
        return "\n  ".join(lines)


def problem_of_row(row: Mapping[str, Any]) -> str | None:
    """Why a flat row can't be run: field, what was expected, what was there; None when it can."""
    try:
        _RunRequest.model_validate(row)
    except ValidationError as error:
        return _first(error)
    return None


def problem_of_task(row: Mapping[str, Any]) -> str | None:
    """Why a materialised row is no task; None when it is one."""
    if not isinstance(row.get("task_input"), Mapping):
        return "`task_input` must be an object"
    try:
        TaskId.model_validate(row.get("task_id"))
    except ValidationError as error:
        return f"task_id: {_first(error)}"
    return None


def _first(error: ValidationError) -> str:
    first, *others = error.errors(include_url=False)
    where = ".".join(map(str, first["loc"]))
    more = f" (and {len(others)} more)" if others else ""
    found = "" if first["type"] == "missing" else f", found {str(first['input'])[:80]!r}"
    hint = (
        " (rows of chat completions keep it under `messages`)" if first["loc"] == ("responses_create_params",) else ""
    )
    return f"{where}: {first['msg']}{found}{more}{hint}"


class SchemaCheck:
    """Holds the rows of a data set against the schema its server ships, if it ships one."""

    def __init__(
        self, config: DictConfig | Mapping[str, Any], dataset: DeclaredDataset, mode: Literal["off", "warn", "error"]
    ) -> None:
        self._mode = mode
        self._validator = None if mode == "off" else _validator(config, dataset)

    def see(self, index: int, row: dict[str, Any]) -> None:
        if self._validator is not None:
            self._validator.validate_row(index, row)

    def finish(self) -> None:
        """Say what doesn't fit. Raises DatasetError in mode error."""
        report = self._validator.report if self._validator is not None else None
        if report is None or report.clean:
            return
        if self._mode == "error":
            raise DatasetError(report.summary())
        warn(report.summary())


def owner_directory(config: DictConfig | Mapping[str, Any], dataset: DeclaredDataset) -> Path | None:
    """The folder of the server that owns a data set's rows: the declaring resources server, else its agent's, else the
    agent. None when the agent's reference leads nowhere, or the folder isn't there."""
    instance = dataset.instance
    if instance.server_type == RESOURCES_SERVERS:
        return find_server_dir(instance.implementation, RESOURCES_SERVERS)
    bound = reference_name(instance.block, "resources_server")
    if bound is None:
        return find_server_dir(instance.implementation, instance.server_type)
    blocks = implementation_blocks(tolerantly_resolved(config), RESOURCES_SERVERS)
    kind = next((kind for name, kind, _ in blocks if name == bound), None)
    return None if kind is None else find_server_dir(kind, RESOURCES_SERVERS)


def _validator(config: DictConfig | Mapping[str, Any], dataset: DeclaredDataset) -> TaskDataValidator | None:
    folder = owner_directory(config, dataset)
    try:
        schema = None if folder is None else load_task_data_schema(folder)
    except TaskDataSchemaError as error:
        warn(f"The rows of {dataset.path} are not held against their schema: {error}")
        return None
    if schema is None or folder is None:
        return None
    return TaskDataValidator(folder.name, schema, str(dataset.path))
