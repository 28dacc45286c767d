"""Prompt templates: making a row's input from its other fields."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from nemo_gym.config.errors import ConfigError, ConfigPathNotFoundError
from nemo_gym.config.hints import did_you_mean
from nemo_gym.config.keys import RESPONSES_CREATE_PARAMS_KEY_NAME
from nemo_gym.config.roots import component_search_roots, resolve_under_roots
from nemo_gym.config.yaml_files import load_yaml_mapping

_SHOWN_ROWS = 20


class PromptConfig(BaseModel):
    """Templates in `str.format` syntax over a row's top-level fields; `{{` and `}}` are braces."""

    user: str
    system: str | None = None


def load_prompt_config(path: str) -> PromptConfig:
    """The templates in a YAML file, looked for under the search roots. Each file is read once.

    Raises ConfigPathNotFoundError or ConfigError.
    """
    found = resolve_under_roots(path)
    if not found.is_file():
        tried = [Path(path)] if Path(path).is_absolute() else [root / path for root in component_search_roots()]
        raise ConfigPathNotFoundError(f"There is no prompt config {path}. Looked for: {', '.join(map(str, tried))}.")
    return _loaded(found.resolve(), path)


@lru_cache(maxsize=64)
def _loaded(found: Path, path: str) -> PromptConfig:
    try:
        return PromptConfig.model_validate(load_yaml_mapping(found, path))
    except ValidationError as error:
        raise ConfigError(f"The prompt config {path} needs `user: <text>` and may have `system: <text>`.") from error


load_prompt_config.cache_clear = _loaded.cache_clear  # type: ignore[attr-defined]  # as 0.7's cached function has it


def fill_prompt(prompt_config: PromptConfig, row: Mapping[str, Any]) -> list[dict[str, str]]:
    """The messages for a row: the system one if there is a template for it, then the user's.

    Raises KeyError naming a field the row doesn't have, and those it has.
    """
    templates = {"system": prompt_config.system, "user": prompt_config.user}
    return [
        {"role": role, "content": _filled(template, row)}
        for role, template in templates.items()
        if template is not None
    ]


def apply_prompt_to_row(row: Mapping[str, Any], prompt_config: PromptConfig) -> dict[str, Any]:
    """A copy of the row whose `responses_create_params.input` is the filled prompt; other parameters are kept."""
    parameters = {**(row.get(RESPONSES_CREATE_PARAMS_KEY_NAME) or {}), "input": fill_prompt(prompt_config, row)}
    return {**row, RESPONSES_CREATE_PARAMS_KEY_NAME: parameters}


def validate_prompt_compatibility(rows: Iterable[Mapping[str, Any]], prompt_config: PromptConfig) -> None:
    """Refuse rows that bring an input of their own.

    Raises ValueError with their indices, counted from 0.
    """
    own = [index for index, row in enumerate(rows) if (row.get(RESPONSES_CREATE_PARAMS_KEY_NAME) or {}).get("input")]
    if own:
        more = f" and {len(own) - _SHOWN_ROWS} more" if len(own) > _SHOWN_ROWS else ""
        shown = ", ".join(map(str, own[:_SHOWN_ROWS]))
        raise ValueError(
            f"A prompt config was given, but rows {shown}{more} already have {RESPONSES_CREATE_PARAMS_KEY_NAME}.input: "
            f"drop the one or the other."
        )


def materialize_prompts(input_jsonl_fpath: str | Path, prompt_config: str, output_jsonl_fpath: str | Path) -> int:
    """Write the rows of a file with filled prompts, each with the template's path as `prompt_config_used`.

    Gives the number of rows. Raises ConfigError naming file and line, ValueError for rows that have an input.
    """
    prompt = load_prompt_config(prompt_config)
    used = str(resolve_under_roots(prompt_config))
    source, output = Path(input_jsonl_fpath), Path(output_jsonl_fpath)
    validate_prompt_compatibility(_rows(source), prompt)
    output.parent.mkdir(parents=True, exist_ok=True)
    unfinished = output.with_name(f".{output.name}.unfinished")
    count = 0
    try:
        with unfinished.open("w", encoding="utf-8") as file:
            for count, row in enumerate(_rows(source), start=1):
                filled = _applied(row, prompt, count - 1, source)
                file.write(json.dumps({**filled, "prompt_config_used": used}) + "\n")
        unfinished.replace(output)
    finally:
        unfinished.unlink(missing_ok=True)
    return count


def _applied(row: Mapping[str, Any], prompt: PromptConfig, index: int, source: Path) -> dict[str, Any]:
    try:
        return apply_prompt_to_row(row, prompt)
    except KeyError as error:
        raise ConfigError(f"Row {index} of {source}: {error.args[0]}") from error


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open(encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield _row(line, f"{path}:{number}")
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror or error}.") from error


def _row(line: str, place: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{place}: not valid JSON ({error}).") from error
    if not isinstance(row, dict):
        raise ConfigError(f"{place}: a row must be an object, not {type(row).__name__}.")
    return row


def _filled(template: str, row: Mapping[str, Any]) -> str:
    try:
        return template.format_map(row)
    except KeyError as error:
        field = str(error.args[0])
        known = ", ".join(map(str, row))
        raise KeyError(
            f"The prompt needs the field `{field}`, which the row doesn't have; it has: {known}."
            f"{did_you_mean(field, map(str, row))}"
        ) from error
    except (IndexError, ValueError) as error:
        raise ConfigError(
            f"A prompt template is malformed ({error}): write {{{{ and }}}} for literal braces."
        ) from error
