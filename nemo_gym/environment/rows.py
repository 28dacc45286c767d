"""Checking the rows, prompts and scripts of an environment without running anything."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from nemo_gym.config.keys import RESPONSES_CREATE_PARAMS_KEY_NAME
from nemo_gym.config.prompts import PromptConfig, apply_prompt_to_row, load_prompt_config
from nemo_gym.config.roots import resolve_under_roots
from nemo_gym.environment.errors import EnvironmentValidationError
from nemo_gym.environment.manifest import DatasetType, EnvironmentManifest, ManifestDataset, PromptSource
from nemo_gym.schema.requests import NeMoGymResponseCreateParamsNonStreaming

_FETCHED = (DatasetType.TRAIN, DatasetType.VALIDATION)


class _RunRequest(BaseModel):
    """What every row must hold once its prompt is made."""

    responses_create_params: NeMoGymResponseCreateParamsNonStreaming


@dataclass(frozen=True)
class CheckedDataset:
    """A data set that is right. `rows` is None for one whose file is fetched and isn't there yet."""

    name: str
    type: str
    path: str
    rows: int | None
    prompt_config: str | None


def check_dataset(dataset: ManifestDataset, manifest: EnvironmentManifest) -> CheckedDataset:
    """Read every row of a data set. EnvironmentValidationError names the file and line of the first that is wrong."""
    if dataset.prepare_script is not None:
        check_function(dataset.prepare_script, "prepare", f"the data set `{dataset.name}`", sync=True)
    path = resolve_under_roots(dataset.jsonl_fpath)
    rows: int | None = None
    if path.is_file():
        rows = _check_rows(path, _prompt(dataset, manifest), manifest.prompt_source)
    elif dataset.type not in _FETCHED:
        raise EnvironmentValidationError(f"The rows of `{dataset.name}` are missing: {path}.{_how_to_make(dataset)}")
    return CheckedDataset(dataset.name, dataset.type.value, str(path), rows, dataset.prompt_config)


def check_function(file: str, function: str, user: str, *, sync: bool = False) -> None:
    """See that a Python file has a function at its top level, without running it.

    Raises EnvironmentValidationError.
    """
    path = resolve_under_roots(file)
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise EnvironmentValidationError(f"{path}, which {user} needs, can't be read: {error.strerror}.") from error
    except (SyntaxError, ValueError) as error:
        raise EnvironmentValidationError(f"{path}, which {user} needs, is no valid Python: {error}.") from error
    kinds = (ast.FunctionDef,) if sync else (ast.FunctionDef, ast.AsyncFunctionDef)
    if not any(isinstance(node, kinds) and node.name == function for node in tree.body):
        what = "plain function" if sync else "function"
        raise EnvironmentValidationError(f"{path} has no {what} {function}(), which {user} needs.")


def _prompt(dataset: ManifestDataset, manifest: EnvironmentManifest) -> PromptConfig | None:
    uses_template = manifest.prompt_source is PromptSource.TEMPLATE and dataset.prompt_config is not None
    return load_prompt_config(str(dataset.prompt_config)) if uses_template else None


def _check_rows(path: Path, prompt: PromptConfig | None, source: PromptSource) -> int:
    count = 0
    for number, row in _rows(path):
        count += 1
        try:
            _check_row(row, prompt, source)
        except (ValueError, KeyError) as error:
            text = error.args[0] if isinstance(error, KeyError) else _first_problem(error)
            raise EnvironmentValidationError(f"{path}, row {number}: {text}") from error
    if not count:
        raise EnvironmentValidationError(f"{path} holds no rows.")
    return count


def _check_row(row: dict[str, Any], prompt: PromptConfig | None, source: PromptSource) -> None:
    own_input = (row.get(RESPONSES_CREATE_PARAMS_KEY_NAME) or {}).get("input")
    if prompt is not None:
        if own_input:
            raise ValueError("it has an input of its own, and a prompt_config would replace that")
        row = apply_prompt_to_row(row, prompt)
    elif source is PromptSource.PREPARED and not own_input:
        raise ValueError("it has no responses_create_params.input, which prepared prompts must have")
    elif source is PromptSource.AGENT and RESPONSES_CREATE_PARAMS_KEY_NAME not in row:
        return
    _RunRequest.model_validate(row)


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise EnvironmentValidationError(f"{path}, row {number}: not valid JSON ({error}).") from error
            if not isinstance(row, dict):
                raise EnvironmentValidationError(f"{path}, row {number}: a row must be an object.")
            yield number, row


def _first_problem(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    issue = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, issue['loc']))}: {issue['msg']}"


def _how_to_make(dataset: ManifestDataset) -> str:
    return f" {dataset.prepare_script} writes them: run `gym eval prepare`." if dataset.prepare_script else ""
