"""Numbers for tasks and their repeats, without keeping the tasks."""

from __future__ import annotations

from array import array
from hashlib import blake2b

_DENSE = 1 << 22
"""Repeat counters of tasks numbered below this live in an array, the rest in a dict."""


class TaskNumbers:
    """Gives equal texts one number, in first-seen order from 0.

    Texts are known by a 64-bit digest in an open-addressed table: 12 bytes a slot where a dict of a million digests
    takes a hundred megabytes. Among a million texts two differ and share a digest with a chance of 3 in 10⁸.
    """

    def __init__(self) -> None:
        self._digests = array("Q", bytes(8 * 1024))
        self._numbers = array("I", bytes(4 * 1024))
        self._count = 0

    def of(self, text: bytes) -> int:
        digest = int.from_bytes(blake2b(text, digest_size=8).digest(), "little") or 1
        slot = self._slot(digest)
        if self._digests[slot]:
            return self._numbers[slot]
        number = self._count
        self._digests[slot], self._numbers[slot] = digest, number
        self._count += 1
        if self._count * 3 > len(self._digests) * 2:
            self._grow()
        return number

    def _slot(self, digest: int) -> int:
        mask = len(self._digests) - 1
        slot = digest & mask
        while (found := self._digests[slot]) and found != digest:
            slot = (slot + 1) & mask
        return slot

    def _grow(self) -> None:
        digests, numbers = self._digests, self._numbers
        self._digests = array("Q", bytes(16 * len(digests)))
        self._numbers = array("I", bytes(8 * len(numbers)))
        for digest, number in zip(digests, numbers, strict=True):
            if digest:
                slot = self._slot(digest)
                self._digests[slot], self._numbers[slot] = digest, number


class RepeatCounters:
    """Numbers the rollouts of each task from 0, whichever lines and agents they come from."""

    def __init__(self) -> None:
        self._dense = array("I")
        self._sparse: dict[int, int] = {}

    def take(self, task: int, count: int) -> range:
        """The next `count` rollout numbers of a task."""
        start = self._get(task)
        self._set(task, start + count)
        return range(start, start + count)

    def _get(self, task: int) -> int:
        if 0 <= task < _DENSE:
            return self._dense[task] if task < len(self._dense) else 0
        return self._sparse.get(task, 0)

    def _set(self, task: int, value: int) -> None:
        if not 0 <= task < _DENSE:
            self._sparse[task] = value
            return
        if task >= len(self._dense):
            self._dense.frombytes(bytes(self._dense.itemsize * (task + 1 - len(self._dense))))
        self._dense[task] = value
