"""The schema a server gives its rows, and what rows are held against it."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field, TypeAdapter, ValidationError

from nemo_gym.config.errors import ConfigError
from nemo_gym.config.keys import (
    AGENT_REF_KEY_NAME,
    RESPONSES_CREATE_PARAMS_KEY_NAME,
    ROLLOUT_INDEX_KEY_NAME,
    TASK_INDEX_KEY_NAME,
    TASK_SOURCE_KEY_NAME,
)
from nemo_gym.config.roots import resolve_under_roots

RESERVED_ROW_KEYS = frozenset(
    {
        RESPONSES_CREATE_PARAMS_KEY_NAME,
        AGENT_REF_KEY_NAME,
        TASK_SOURCE_KEY_NAME,
        TASK_INDEX_KEY_NAME,
        ROLLOUT_INDEX_KEY_NAME,
    }
)
VERIFIER_METADATA = "verifier_metadata"
TASK_DATA = "task_data"
_SCHEMA_FILE = "task_data.py"
_SHOWN_ERRORS = 5
_SHOWN_CHARACTERS = 400


class TaskDataSchemaError(ConfigError):
    """A server's task_data.py can't be used."""


def consumed_by(*readers: str, legacy_location: str | None = None) -> Any:
    """The annotation of a `TaskData` field: who reads it (verify, metrics, prompt, provenance), and
    `legacy_location="verifier_metadata"` for one that the server looks for only in there."""
    where = {} if legacy_location is None else {"legacy_location": legacy_location}
    return Field(json_schema_extra={"consumed_by": [*readers], **where})


def find_server_dir(name: str, base_folder: str) -> Path | None:
    """The folder of a component under the first root that has it."""
    found = resolve_under_roots(Path(base_folder) / name, validator=Path.is_dir)
    return found if found.is_dir() else None


def load_task_data_schema(server_dir: Path) -> TypeAdapter[Any] | None:
    """The schema that `TaskData` in a server's task_data.py is; None without such a file.

    The module runs without the server's venv. Raises TaskDataSchemaError when it fails or exports no schema.
    """
    path = Path(server_dir) / _SCHEMA_FILE
    if not path.is_file():
        return None
    name = f"_nemo_gym_task_data_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # annotations of its classes are looked up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise TaskDataSchemaError(f"{path} can't be imported: {type(error).__name__}: {error}.") from error
    if not hasattr(module, "TaskData"):
        raise TaskDataSchemaError(f"{path} exports no `TaskData`: define a pydantic model or a union of them.")
    try:
        return TypeAdapter(module.TaskData)
    except Exception as error:
        raise TaskDataSchemaError(f"`TaskData` in {path} is no schema for pydantic: {error}.") from error


def normalize_task_fields(row: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The fields of a row that are the task's, and those given twice with different values (the outer one is kept).

    What is inside `verifier_metadata` and `task_data` counts as top level; one that isn't an object stays a field.
    """
    fields = {key: value for key, value in row.items() if key not in RESERVED_ROW_KEYS}
    conflicts: list[str] = []
    for container in (VERIFIER_METADATA, TASK_DATA):
        if not isinstance(fields.get(container), dict):
            continue
        for key, value in fields.pop(container).items():
            if key in fields and fields[key] != value:
                conflicts.append(key)
            fields.setdefault(key, value)
    return fields, conflicts


def legacy_metadata_fields(adapter: TypeAdapter[Any]) -> set[str]:
    """Fields marked `legacy_location: verifier_metadata`: the server looks for them only in there."""
    marked = (name for name, schema in _properties(adapter) if schema.get("legacy_location") == VERIFIER_METADATA)
    return set(marked)


@dataclass
class TaskDataValidationReport:
    """What a file's rows were found to be; `errors` are the first few, keys are counted by rows."""

    server_name: str
    dataset_fpath: str
    rows: int = 0
    error_rows: int = 0
    errors: list[str] = field(default_factory=list)
    unknown_keys: Counter[str] = field(default_factory=Counter)
    conflicting_keys: Counter[str] = field(default_factory=Counter)
    misplaced_keys: Counter[str] = field(default_factory=Counter)

    @property
    def clean(self) -> bool:
        return not (self.error_rows or self.unknown_keys or self.conflicting_keys or self.misplaced_keys)

    def summary(self) -> str:
        """What was found, one line per kind."""
        lines = [f"{self.dataset_fpath}: {self.rows} rows against the task data of `{self.server_name}`"]
        if self.error_rows:
            lines += [f"  {self.error_rows} rows don't fit:", *(f"    {error}" for error in self.errors)]
        kinds = {
            "keys the schema doesn't know": self.unknown_keys,
            "keys given twice with different values": self.conflicting_keys,
            f"keys the server reads only inside {VERIFIER_METADATA}": self.misplaced_keys,
        }
        for said, counts in kinds.items():
            if counts:
                lines.append(f"  {said}: " + ", ".join(f"{key} ({rows} rows)" for key, rows in sorted(counts.items())))
        return "\n".join([*lines, "  all fit"] if self.clean else lines)


class TaskDataValidator:
    """Holds rows against a server's schema, one after the other."""

    def __init__(self, server_name: str, adapter: TypeAdapter[Any], dataset_fpath: str) -> None:
        self.report = TaskDataValidationReport(server_name, dataset_fpath)
        self._adapter = adapter
        self._known = {name for name, _ in _properties(adapter)}
        self._only_in_metadata = legacy_metadata_fields(adapter)

    def validate_row(self, row_index: int, row: dict[str, Any]) -> None:
        """Add a row to the report."""
        report = self.report
        report.rows += 1
        fields, conflicts = normalize_task_fields(row)
        report.conflicting_keys.update(conflicts)
        report.misplaced_keys.update(self._misplaced(row))
        if self._known:
            report.unknown_keys.update(str(key) for key in fields if key not in self._known)
        try:
            self._adapter.validate_python(fields)
        except ValidationError as error:
            report.error_rows += 1
            if len(report.errors) < _SHOWN_ERRORS:
                report.errors.append(f"{row_index}: {_one_line(error)[:_SHOWN_CHARACTERS]}")

    def _misplaced(self, row: dict[str, Any]) -> Iterator[str]:
        inside = row.get(VERIFIER_METADATA)
        if TASK_DATA not in row:
            for key in self._only_in_metadata:
                if key in row and not (isinstance(inside, dict) and key in inside):
                    yield key


def validate_jsonl_rows(
    server_name: str, adapter: TypeAdapter[Any], dataset_fpath: str, lines: Iterable[str]
) -> TaskDataValidationReport:
    """Hold the rows of a JSONL file against a schema; a line that isn't an object counts as a row that doesn't fit."""
    validator = TaskDataValidator(server_name, adapter, dataset_fpath)
    for index, line in enumerate(line for line in lines if line.strip()):
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if isinstance(row, dict):
            validator.validate_row(index, row)
            continue
        validator.report.rows += 1
        validator.report.error_rows += 1
        if len(validator.report.errors) < _SHOWN_ERRORS:
            validator.report.errors.append(f"{index}: not a JSON object")
    return validator.report


def _properties(adapter: TypeAdapter[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The top-level fields of a schema, for a union those of every member."""
    schema = adapter.json_schema()
    yield from _properties_of(schema, schema.get("$defs", {}))


def _properties_of(schema: dict[str, Any], definitions: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    if reference := schema.get("$ref"):
        yield from _properties_of(definitions[reference.rpartition("/")[2]], definitions)
    for member in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from _properties_of(member, definitions)
    yield from schema.get("properties", {}).items()


def _one_line(error: ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(map(str, item['loc']))} {item['msg'].removeprefix('Value error, ')}".strip()
        for item in error.errors(include_url=False)
    )
