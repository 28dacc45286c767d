"""What a scripted model answers in a rollout: written beforehand, or by a generator that hears the environment."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Sequence
from itertools import count
from typing import Any

from nemo_gym.testing.responses import Item, message

Reply = str | Item | tuple[str | Item, ...]
"""What a model answers to one call: a message by its text, an output item of the Responses API, or several of these."""

Replies = Reply | Sequence[Reply] | Generator[Reply, str, None] | None
"""All that a model answers in a rollout: one reply, a list with one for each call of the model, or a generator.

A generator yields the next reply, and its `yield` gives the text of what the environment said to it. None stands for no
answer at all.
"""

_numbers = count(1)


def call(name: str, /, **arguments: Any) -> Item:
    """The item with which a model calls a tool."""
    return {
        "type": "function_call",
        "call_id": f"call_{next(_numbers)}",
        "name": name,
        "arguments": json.dumps(arguments, ensure_ascii=False),
    }


def items_of(reply: Reply) -> list[Item]:
    """The output items of one reply."""
    parts = reply if isinstance(reply, tuple) else (reply,)
    return [message(part) if isinstance(part, str) else part for part in parts]


class Script:
    """Gives the replies of a rollout in turn; when there are no more, `after`, or the last one again for None."""

    def __init__(self, replies: Replies, *, after: Reply | None = None) -> None:
        self._rest = _turns(replies)
        self._after = after
        self._last: Reply = ()

    def next(self, seen: str) -> list[Item]:
        """The items of the next reply; `seen` is what the environment has said since the one before."""
        try:
            self._last = self._rest.send(seen) if isinstance(self._rest, _Heard) else next(self._rest)
        except StopIteration:
            self._last = self._last if self._after is None else self._after
        return items_of(self._last)


class _Heard:
    """A generator that is told what was said since its last reply; what came before the first one it knows."""

    def __init__(self, generator: Generator[Reply, str, None]) -> None:
        self._generator = generator
        self._has_begun = False

    def send(self, seen: str) -> Reply:
        if not self._has_begun:
            self._has_begun = True
            return next(self._generator)
        return self._generator.send(seen)


def _turns(replies: Replies) -> _Heard | Iterator[Reply]:
    if isinstance(replies, Generator):
        return _Heard(replies)
    if replies is None:
        return iter(())
    return iter([replies] if isinstance(replies, str | dict | tuple) else replies)
