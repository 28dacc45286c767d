"""From comparisons of pairs to a score for each response."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any, Literal

from pydantic import BaseModel

from resources_servers.genrm_compare.conversations import extract_from_response_obj
from resources_servers.genrm_compare.style import apply_style_penalties, centred_weights
from resources_servers.genrm_compare.verdicts import TIE

AggregatorMethod = Literal["simple_tiebreaker"]


class Comparison(BaseModel):
    """What the judge numbered `judge_idx` says of two responses, by their places in the group."""

    response_i: int
    response_j: int
    judge_idx: int = 0
    score_1: float
    score_2: float
    ranking: float

    @property
    def is_tie(self) -> bool:
        return self.score_1 == self.score_2

    @property
    def scores(self) -> tuple[float, float]:
        """Of both, with the ranking to settle a tie."""
        margin = TIE - self.ranking if self.is_tie else 0.0
        return self.score_1 + margin, self.score_2 - margin


@dataclass(frozen=True)
class Adjustments:
    """What scores get for brevity and plainness."""

    reasoning_bonus: float = 0.0
    answer_bonus: float = 0.0
    top_percentile: float = 0.2
    group_reasoning_length_penalty_coeff: float = 0.0
    group_answer_length_penalty_coeff: float = 0.0
    group_style_penalty_coeff: float = 0.0


def aggregate_scores(
    comparisons: Sequence[Comparison],
    responses: Sequence[Any],
    *,
    default_score: float = 3.0,
    aggregator_method: AggregatorMethod = "simple_tiebreaker",
    adjustments: Adjustments | None = None,
) -> tuple[list[float], dict[str, float]]:
    """The score of each response and the metrics of the comparisons.

    A response's score is the mean over its comparisons, then adjusted; `default_score` without any. ValueError for
    another method.
    """
    if aggregator_method != "simple_tiebreaker":
        raise ValueError(f"aggregator_method {aggregator_method!r}: it must be simple_tiebreaker")
    collected: list[list[float]] = [[] for _ in responses]
    for comparison in comparisons:
        first, second = comparison.scores
        collected[comparison.response_i].append(first)
        collected[comparison.response_j].append(second)
    scores = [fmean(own) if own else default_score for own in collected]
    return _adjusted(scores, responses, adjustments or Adjustments()), _metrics(comparisons)


def _metrics(comparisons: Sequence[Comparison]) -> dict[str, float]:
    if not comparisons:
        return {}
    single = [score for comparison in comparisons for score in (comparison.score_1, comparison.score_2)]
    return {
        "mean_individual_score": fmean(single),
        "std_individual_score": pstdev(single),
        "tiebreak_usage_rate": fmean(comparison.is_tie for comparison in comparisons),
    }


def _adjusted(scores: list[float], responses: Sequence[Any], by: Adjustments) -> list[float]:
    thoughts, answers = zip(*map(extract_from_response_obj, responses), strict=True) if responses else ((), ())
    adjusted = list(scores)
    for texts, bonus in ((thoughts, by.reasoning_bonus), (answers, by.answer_bonus)):
        winner = _shortest_of_the_best(scores, texts, by.top_percentile) if bonus else None
        if winner is not None:
            adjusted[winner] += bonus
    for texts, coefficient in (
        (thoughts, by.group_reasoning_length_penalty_coeff),
        (answers, by.group_answer_length_penalty_coeff),
    ):
        if coefficient:
            weights = centred_weights([float(len(text)) for text in texts])
            adjusted = [score + coefficient * weight for score, weight in zip(adjusted, weights, strict=True)]
    if by.group_style_penalty_coeff:
        adjusted = apply_style_penalties(adjusted, responses, by.group_style_penalty_coeff)
    return adjusted


def _shortest_of_the_best(scores: Sequence[float], texts: Sequence[str], share: float) -> int | None:
    """The place of the shortest text that isn't empty, if its score is among the best; else none."""
    written = [place for place, text in enumerate(texts) if text]
    if not written:
        return None
    shortest = min(written, key=lambda place: len(texts[place]))
    threshold = sorted(scores, reverse=True)[max(0, int(len(scores) * share) - 1)]
    return shortest if scores[shortest] >= threshold else None
