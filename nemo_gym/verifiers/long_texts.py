"""Reading what is unusually long where it doesn't hold up the server.

Reading a usual answer takes less time than handing it to a thread, so only long ones are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from nemo_gym.schema.response import NeMoGymResponse
from nemo_gym.verifiers.response_text import all_text, function_calls

P = ParamSpec("P")
T = TypeVar("T")

LONG = 20_000
"""Characters that are read in about a millisecond."""


async def read_apart(size: int, function: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """What `function` returns, called in a thread if the text it reads has more than LONG characters.

    Only for what takes time in proportion to the text: nothing ends it.
    """
    if size <= LONG:
        return function(*args, **named)
    return await asyncio.to_thread(function, *args, **named)


def size_of(response: NeMoGymResponse) -> int:
    """The characters a model said and called tools with; a call counts as a hundred at least."""
    return len(all_text(response)) + sum(100 + len(call.arguments) for call in function_calls(response))
