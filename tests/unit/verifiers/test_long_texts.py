from __future__ import annotations

import threading

import pytest

from nemo_gym.verifiers.long_texts import LONG, read_apart, size_of
from tests.unit.verifiers.responses import call, message, reasoning, response


@pytest.mark.parametrize(("size", "is_here"), [(0, True), (LONG, True), (LONG + 1, False)])
async def test_only_what_is_long_is_read_in_a_thread(size: int, is_here: bool) -> None:
    assert (await read_apart(size, threading.get_ident) == threading.get_ident()) is is_here
    assert await read_apart(size, int, "11", base=2) == 3


async def test_what_is_raised_comes_through() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        await read_apart(LONG + 1, int, "x")


def test_the_size_of_a_response() -> None:
    assert size_of(response(message("abc", "d"), reasoning("long"), call("f", '{"a": 1}'), call("g", "{}"))) == 214
    assert size_of(response()) == 0
