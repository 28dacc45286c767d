"""A conversation that can be made shorter."""

from __future__ import annotations

from typing import Any

from responses_api_agents.simple_agent.conversation import Conversation

_OF_MODELS = frozenset({"reasoning", "function_call"})


class Transcript(Conversation):
    """What a model was given and has produced so far."""

    def drop_oldest_exchange(self) -> bool:
        """Forget the first turn of the model and what came back for it; whether there was one, and something is left.

        It is gone from the result too: what the last turns say is what the model saw.
        """
        end = _end_of_exchange(self._raw_output)
        if not 0 < end < len(self._raw_output):
            return False
        del self._raw_output[:end]
        del self._output[:end]
        return True

    @property
    def has_response(self) -> bool:
        return self._last is not None


def _end_of_exchange(items: list[Any]) -> int:
    end = 0
    while end < len(items) and _is_of_model(items[end]):
        end += 1
    if end == 0:
        return 0
    while end < len(items) and not _is_of_model(items[end]):
        end += 1
    return end


def _is_of_model(item: dict[str, Any]) -> bool:
    return item.get("type") in _OF_MODELS or item.get("role") == "assistant"
