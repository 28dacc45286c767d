"""Filling the prompts of rows that come without an input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nemo_gym.config.keys import RESPONSES_CREATE_PARAMS_KEY_NAME
from nemo_gym.config.prompts import PromptConfig, apply_prompt_to_row, load_prompt_config
from nemo_gym.rollouts.errors import RowError
from nemo_gym.rollouts.materialise import SourceRow, listed
from nemo_gym.rollouts.sources import RowFile, source_rows

if TYPE_CHECKING:
    from omegaconf import DictConfig


def prompted_rows(
    config: DictConfig | Mapping[str, Any], files: tuple[RowFile, ...], limit: int | None, prompt_config: str | None
) -> Iterable[SourceRow]:
    """The rows of the files, with the run's prompt filled in when it has one."""
    rows = source_rows(config, files, limit)
    return rows if prompt_config is None else with_prompts(rows, load_prompt_config(prompt_config))


def with_prompts(rows: Iterable[SourceRow], prompt: PromptConfig) -> Iterator[SourceRow]:
    """The rows with filled prompts.

    Raises RowError for a row that lacks a field of the prompt, and at the end one for all rows that bring an input of
    their own.
    """
    own: list[str] = []
    for row in rows:
        params = row.fields.get(RESPONSES_CREATE_PARAMS_KEY_NAME)
        if isinstance(params, Mapping) and params.get("input"):
            own.append(row.place)
        else:
            yield replace(row, fields=_filled(row, prompt))
    if own:
        raise RowError(
            f"--prompt-config was given, but rows have a `{RESPONSES_CREATE_PARAMS_KEY_NAME}.input` already: "
            f"{listed(own)}. Drop the one or the other."
        )


def _filled(row: SourceRow, prompt: PromptConfig) -> dict[str, Any]:
    try:
        return apply_prompt_to_row(row.fields, prompt)
    except KeyError as error:
        raise RowError(f"{row.place}: {error.args[0]}") from error
