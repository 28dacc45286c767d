"""Request bodies that nobody should send, made of those that are right."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Sequence
from typing import Any


def spoiled(
    body: dict[str, Any],
    rng: random.Random,
    odd: Sequence[Any],
    *,
    most: int,
    nested: Callable[[int], Any] | None = None,
    added: Sequence[str] = (),
) -> bytes:
    """The body with one to `most` values anywhere in it removed, or replaced by an odd one or by `nested` of a depth.

    Keys of `added` may get one too.
    """
    body = copy.deepcopy(body)
    for _ in range(rng.randint(1, most)):
        _spoil(body, rng, odd, nested)
        if added and rng.random() < 0.2:
            body[rng.choice(added)] = copy.deepcopy(rng.choice(odd))
    return json.dumps(body).encode()


def _spoil(body: dict[str, Any], rng: random.Random, odd: Sequence[Any], nested: Callable[[int], Any] | None) -> None:
    holder: Any = body
    while keys := list(holder) if isinstance(holder, dict) else list(range(len(holder))):
        key = rng.choice(keys)
        if isinstance(holder[key], dict | list) and rng.random() < 0.75:
            holder = holder[key]
            continue
        if rng.random() < 0.15:
            del holder[key]
        elif nested is not None and rng.random() < 0.1:
            holder[key] = nested(rng.choice([90, 110, 400]))
        else:
            holder[key] = copy.deepcopy(rng.choice(odd))
        return
