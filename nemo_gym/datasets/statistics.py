"""Figures about many values, gathered one at a time and mergeable."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

_LABELS = 100
_OTHER = "Other"
_OTHER_OVERFLOW = "Other (overflow)"


@dataclass
class NumberStatistics:
    """Count, mean, extremes and sample standard deviation (Welford; merging after Chan et al., 1979)."""

    count: int = 0
    mean: float = 0.0
    minimum: float = math.inf
    maximum: float = -math.inf
    squares: float = 0.0

    def observe(self, value: float) -> None:
        self.count += 1
        delta = value - self.mean
        self.mean += delta / self.count
        self.squares += delta * (value - self.mean)
        self.minimum, self.maximum = min(self.minimum, value), max(self.maximum, value)

    def merge(self, other: NumberStatistics) -> None:
        if not other.count:
            return
        total = self.count + other.count
        delta = other.mean - self.mean
        self.squares += other.squares + delta * delta * self.count * other.count / total
        self.mean += delta * other.count / total
        self.count = total
        self.minimum, self.maximum = min(self.minimum, other.minimum), max(self.maximum, other.maximum)

    def to_json(self) -> dict[str, float]:
        """The display names; zeros when there was no value, deviation 0 for one."""
        deviation = math.sqrt(self.squares / (self.count - 1)) if self.count > 1 else 0.0
        figures = (self.mean, self.minimum, self.maximum, deviation) if self.count else (0.0, 0.0, 0.0, 0.0)
        names = ("Average", "Min", "Max", "Standard deviation")
        rounded = dict(zip(names, map(_rounded, figures), strict=True))
        return {"Total # non-null values": self.count, **rounded}


@dataclass
class TextStatistics:
    """How many texts there were, and how many different ones (known by 64-bit digests)."""

    total: int = 0
    digests: set[int] = field(default_factory=set)

    def observe(self, value: str) -> None:
        self.total += 1
        digest = blake2b(value.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        self.digests.add(int.from_bytes(digest, "little"))

    def merge(self, other: TextStatistics) -> None:
        self.total += other.total
        self.digests |= other.digests

    def to_json(self) -> dict[str, int]:
        return {"unique_count": len(self.digests), "total_count": self.total}


@dataclass
class LabelStatistics:
    """How often each label occurred; labels beyond the hundredth are counted together."""

    counts: dict[str, int] = field(default_factory=dict)
    overflow: int = 0

    def observe(self, label: str, times: int = 1) -> None:
        if label in self.counts or len(self.counts) < _LABELS:
            self.counts[label] = self.counts.get(label, 0) + times
        else:
            self.overflow += times

    def merge(self, other: LabelStatistics) -> None:
        for label, times in other.counts.items():
            self.observe(label, times)
        self.overflow += other.overflow

    def to_json(self) -> dict[str, Any]:
        counts = dict(sorted(self.counts.items()))
        if self.overflow:
            counts[_OTHER_OVERFLOW if _OTHER in counts else _OTHER] = self.overflow
        return {"counts": counts, "unique_count": len(self.counts), "total_count": sum(counts.values())}


def _rounded(value: float) -> float:
    return round(value, 2 if abs(value) >= 1 else 3)
