"""How far scores are from those they should be."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from pydantic import BaseModel

from resources_servers.generative_reward_model.score_parser import Evaluation, Scores

TIE = 3.5


class Gold(BaseModel):
    """Scores as they should be; what is null isn't compared."""

    score_1: float | None = None
    score_2: float | None = None
    ranking: float | None = None

    @property
    def is_empty(self) -> bool:
        return self.score_1 is None and self.score_2 is None and self.ranking is None


class RubricGold(Gold):
    rubric_id: int


@dataclass(frozen=True)
class Weights:
    score: float
    ranking: float
    rubric: float


@dataclass(frozen=True)
class Distance:
    """Absolute differences; None for what isn't compared."""

    score_1: float | None
    score_2: float | None
    ranking: float | None

    @classmethod
    def between(cls, said: Scores, gold: Gold) -> Distance:
        return cls(
            _difference(said.score_1, gold.score_1),
            _difference(said.score_2, gold.score_2),
            _difference(said.ranking, gold.ranking),
        )

    @property
    def scores(self) -> list[float]:
        return [each for each in (self.score_1, self.score_2) if each is not None]

    def weighted(self, weights: Weights) -> float:
        return weights.score * sum(self.scores) + weights.ranking * (self.ranking or 0.0)


def rubric_distances(said: Evaluation, gold: Sequence[RubricGold]) -> list[Distance] | None:
    """For each rubric with anything to compare; None where the reply scores other rubrics, or one of them twice."""
    ids = [rubric for rubric, _ in said.rubrics]
    if len(set(ids)) != len(ids) or Counter(ids) != Counter(rubric.rubric_id for rubric in gold):
        return None
    scores = dict(said.rubrics)
    return [Distance.between(scores[rubric.rubric_id], rubric) for rubric in gold if not rubric.is_empty]


def reward(overall: Distance, rubrics: Sequence[Distance], weights: Weights) -> float:
    """0 for scores as they should be, and less the farther they are."""
    mean = fmean(distance.weighted(weights) for distance in rubrics) if rubrics else 0.0
    return 0.0 - overall.weighted(weights) - weights.rubric * mean


def same_side(ranking: float, gold: float | None) -> float | None:
    """Whether both prefer the same answer, or both neither, as 1 or 0."""
    return None if gold is None else float(_side(ranking) == _side(gold))


def mean_or_none(numbers: Sequence[float]) -> float | None:
    return fmean(numbers) if numbers else None


def _difference(said: float, gold: float | None) -> float | None:
    return None if gold is None else abs(said - gold)


def _side(ranking: float) -> float:
    return 0.0 if ranking == TIE else math.copysign(1.0, ranking - TIE)
