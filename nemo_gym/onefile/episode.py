"""One task being worked on: its state, the calls made in it, and its verdict."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from nemo_gym.onefile.errors import EnvironmentFileError, line_in, place_of
from nemo_gym.onefile.tools import Tool, called
from nemo_gym.onefile.verdict import Response, Verdict, verdict_of
from nemo_gym.serve.redaction import encodable, shown

if TYPE_CHECKING:
    from nemo_gym.onefile.environment import Environment
    from nemo_gym.schema.response import NeMoGymResponse

LOG = logging.getLogger(__name__)

MOST_LOGGED = 2_000
"""Characters of what a tool or a verifier says, which may come from a model."""


class ToolFailure(Exception):
    """A tool raised: the text is for the model."""


@dataclass
class Episode:
    """Calls of one episode run one after the other, so that its state needs no lock of its own."""

    environment: Environment
    task: dict[str, Any]
    state: Any = None
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @classmethod
    async def begin(cls, environment: Environment, task: dict[str, Any]) -> Episode:
        """An episode with a state of its own."""
        make = environment.new_state
        wants_task = make is not None and "task" in _parameters(make)
        state = None if make is None else await called(make, {"task": task} if wants_task else {})
        return cls(environment, task, state)

    async def call(self, tool: Tool, arguments: BaseModel) -> Any:
        """What a tool returns. Raises ToolFailure, after a line in the log, for what it raises."""
        async with self._turn:
            try:
                return await tool.call(arguments, {"task": self.task, "state": self.state})
            except Exception as error:
                place = line_in(self.environment.file, error) or place_of(tool.function)
                told = f"{type(error).__name__}: {error}"
                LOG.warning("%s: the tool %s: %s", place, tool.name, shown(told, MOST_LOGGED))
                raise ToolFailure(encodable(told)) from error

    async def verify(self, response: NeMoGymResponse) -> Verdict:
        """The verdict. Raises EnvironmentFileError for what is none; what the verifier raises comes through."""
        verify = self.environment.verifier
        known = {"response": Response.of(response), "task": self.task, "state": self.state}
        returned = await called(verify, {name: known[name] for name in _parameters(verify)})
        try:
            return verdict_of(returned)
        except ValueError as error:
            raise EnvironmentFileError(
                f"{place_of(verify)}: `{verify.__name__}` returned {shown(repr(returned), MOST_LOGGED)}, which is no "
                f"reward ({shown(str(error), MOST_LOGGED)}): return a number, (number, reason), or a dict of numbers."
            ) from error


def as_text(result: Any) -> str:
    """What a tool returned, as the model reads it: text as it is, anything else as JSON, where NaN is text.

    Raises ToolFailure, after a line in the log, for what has no JSON.
    """
    if isinstance(result, str):
        return encodable(result)
    try:
        text = encodable(json.dumps(result, default=_plain, ensure_ascii=False))
    except (TypeError, ValueError, RecursionError) as error:
        reason = shown(str(error), MOST_LOGGED)
        LOG.warning("A tool returned %s, which is no text and has no JSON: %s", type(result).__name__, reason)
        raise ToolFailure(f"the tool returned a {type(result).__name__}, which can't be shown ({reason})") from error
    if "NaN" in text or "Infinity" in text:
        text = json.dumps(json.loads(text, parse_constant=str), ensure_ascii=False)
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, set | frozenset):
        return sorted(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if hasattr(value, "tolist"):  # of an array library
        return value.tolist()
    kind: Any = type(value)
    has_text = (kind.__str__, kind.__repr__) != (object.__str__, object.__repr__)
    if not has_text or isinstance(value, Iterator):
        raise TypeError(f"give a {type(value).__name__} a text, or return a dict or list")
    return str(value)


def _parameters(function: Any) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # built-in types, such as `dict`
        return ()
