"""Which rollouts are done, for millions of them."""

from __future__ import annotations

from collections.abc import Iterable

_BITS = 10
_MASK = (1 << _BITS) - 1

RolloutKey = tuple[int, int]


class RolloutKeys:
    """A set of (task, repeat) pairs that takes about a bit for each where tasks are numbered densely."""

    def __init__(self) -> None:
        self._blocks: dict[tuple[int, int], int] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, key: RolloutKey) -> bool:
        task, repeat = key
        return bool(self._blocks.get((repeat, task >> _BITS), 0) >> (task & _MASK) & 1)

    def add(self, key: RolloutKey) -> bool:
        """Whether the key is new."""
        task, repeat = key
        block = (repeat, task >> _BITS)
        bits, bit = self._blocks.get(block, 0), 1 << (task & _MASK)
        if bits & bit:
            return False
        self._blocks[block] = bits | bit
        self._count += 1
        return True

    def add_all(self, keys: Iterable[RolloutKey]) -> list[bool]:
        """Which of the keys are new, in their order."""
        blocks, new = self._blocks, []
        for task, repeat in keys:
            block = repeat, task >> _BITS
            bits, bit = blocks.get(block, 0), 1 << (task & _MASK)
            is_new = not bits & bit
            if is_new:
                blocks[block] = bits | bit
            new.append(is_new)
        self._count += sum(new)
        return new

    def lacking(self, keys: Iterable[RolloutKey]) -> list[int]:
        """The places of the keys that aren't in it."""
        blocks = self._blocks
        return [
            place
            for place, (task, repeat) in enumerate(keys)
            if not blocks.get((repeat, task >> _BITS), 0) >> (task & _MASK) & 1
        ]

    def discard(self, key: RolloutKey) -> bool:
        """Whether the key was there."""
        if key not in self:
            return False
        task, repeat = key
        self._blocks[repeat, task >> _BITS] ^= 1 << (task & _MASK)
        self._count -= 1
        return True
