"""What a model was given and has produced so far, in the form it is sent on and in the form it is read."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from http.cookies import Morsel
from typing import Any

from pydantic import ValidationError

from nemo_gym.openai_utils import (
    NeMoGymEasyInputMessage,
    NeMoGymFunctionCallOutput,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseFunctionToolCall,
    NeMoGymResponseUsage,
)

LOG = logging.getLogger(__name__)

_UNFINISHED = {
    "incomplete_reasoning": "The model stopped after reasoning, without a message or a tool call.",
    "empty_output": "The model's output was empty.",
}


class Conversation:
    """One activation of a model: the request, and every item since.

    Items are kept as the model server sent them, so that they go back to it unchanged, and each is validated once.
    """

    def __init__(self, request: NeMoGymResponseCreateParamsNonStreaming) -> None:
        self.request = _with_item_list(request)
        self._sent: dict[str, Any] | None = None
        self._raw_output: list[Any] = []
        self._output: list[Any] = []
        self._usages: list[NeMoGymResponseUsage] = []
        self._last: NeMoGymResponse | None = None

    def next_request(self) -> NeMoGymResponseCreateParamsNonStreaming | dict[str, Any]:
        """The request with everything that came since at the end of its input."""
        if not self._raw_output:
            return self.request
        return {**self._sent_request(), "input": self.input_items()}

    def input_items(self) -> list[Any]:
        """The conversation so far, which the next request sends as its input, as plain data."""
        return [*self._sent_request()["input"], *self._raw_output]

    def _sent_request(self) -> dict[str, Any]:
        if self._sent is None:
            self._sent = self.request.model_dump(exclude_unset=True)
        return self._sent

    def add_response(self, raw: Any) -> NeMoGymResponse:
        """Append what a model server answered. RuntimeError, with what it was, for what is no response."""
        try:
            response = NeMoGymResponse.model_validate(raw)
        except ValidationError as error:
            raise RuntimeError(f"the model server's answer is not a response: {raw!r}") from error
        self._raw_output += raw["output"]
        self._output += response.output
        self._usages += [response.usage] if response.usage else []
        self._last = response
        return response

    def add_tool_output(self, call_id: str, output: str) -> None:
        item = {"type": "function_call_output", "call_id": call_id, "output": output}
        self._raw_output.append(item)
        self._output.append(NeMoGymFunctionCallOutput.model_validate(item))

    def add_user_message(self, text: str) -> None:
        item = {"type": "message", "role": "user", "content": text}
        self._raw_output.append(item)
        self._output.append(NeMoGymEasyInputMessage.model_validate(item))

    def result(self) -> NeMoGymResponse:
        """The last response, with the output and the usage of all."""
        assert self._last is not None
        return self._last.model_copy(update={"output": self._output, "usage": _total(self._usages)})


def _total(usages: list[NeMoGymResponseUsage]) -> NeMoGymResponseUsage | None:
    """The sum of what was reported; None when nothing was."""
    return NeMoGymResponseUsage.sum_from_list(usages) if len(usages) > 1 else next(iter(usages), None)


def tool_calls(response: NeMoGymResponse) -> list[NeMoGymResponseFunctionToolCall]:
    return [item for item in response.output if item.type == "function_call"]


def mark_unfinished(response: NeMoGymResponse) -> None:
    """Say in a response without tool calls that it has no message either, if so."""
    if any(item.type == "message" and item.role == "assistant" for item in response.output):
        return
    reason = "incomplete_reasoning" if response.output else "empty_output"
    message = _UNFINISHED[reason]
    LOG.warning("Response %s: %s", response.id, message)
    response.status = "incomplete"
    response.metadata = {
        **(response.metadata or {}),
        "ng_termination_reason": reason,
        "ng_termination_message": message,
    }


def cookie_values(cookies: Mapping[str, Any]) -> dict[str, str]:
    """Names and values of cookies, as a client's response or a request holds them."""
    pairs: Iterable[tuple[str, Any]] = cookies.items()
    return {name: value.value if isinstance(value, Morsel) else value for name, value in pairs}


def _with_item_list(
    request: NeMoGymResponseCreateParamsNonStreaming,
) -> NeMoGymResponseCreateParamsNonStreaming:
    if not isinstance(request.input, str):
        return request
    message = NeMoGymEasyInputMessage(role="user", content=request.input)
    return request.model_copy(update={"input": [message]})
