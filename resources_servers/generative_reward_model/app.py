"""Training a reward model: the reward is 0 when its scores of two answers are as they should be, and less otherwise."""

import math
from typing import Any, ClassVar

from pydantic import Field, FiniteFloat

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.verifiers.response_text import all_text
from nemo_gym.verifiers.verdicts import RowError, unmeasured, verdict
from resources_servers.generative_reward_model.comparison import (
    Distance,
    Gold,
    RubricGold,
    Weights,
    mean_or_none,
    reward,
    rubric_distances,
    same_side,
)
from resources_servers.generative_reward_model.score_parser import extract_scores


class GenerativeRewardModelResourcesServerConfig(BaseResourcesServerConfig):
    """`parse_failure_penalty` is the reward of a reply whose scores can't be read."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    score_weight: FiniteFloat = 1.0
    ranking_weight: FiniteFloat = 2.0
    rubric_weight: FiniteFloat = 0.5
    parse_failure_penalty: FiniteFloat = -100.0


class GenerativeRewardModelRunRequest(BaseRunRequest):
    id: int | str
    ground_truth_overall: Gold | None = None
    ground_truth_rubric_scores: list[RubricGold] | None = None


class GenerativeRewardModelVerifyRequest(GenerativeRewardModelRunRequest, BaseVerifyRequest):
    pass


class GenerativeRewardModelVerifyResponse(GenerativeRewardModelVerifyRequest, BaseVerifyResponse):
    """Predictions and distances are null where the scores can't be read, and for what the row says nothing of."""

    predicted_score_1: float | None = None
    predicted_score_2: float | None = None
    predicted_ranking: float | None = None
    format_correct: float = Field(default=0.0, ge=0, le=1)
    overall_score_1_l1: float | None = None
    overall_score_2_l1: float | None = None
    overall_ranking_l1: float | None = None
    rubric_score_l1: float | None = None
    rubric_ranking_l1: float | None = None
    overall_ranking_binary_acc: float | None = None


class GenerativeRewardModelResourcesServer(SimpleResourcesServer):
    config: GenerativeRewardModelResourcesServerConfig

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True

    def verify(  # type: ignore[override]
        self, body: GenerativeRewardModelVerifyRequest
    ) -> GenerativeRewardModelVerifyResponse:
        try:
            own = self._compared(body)
        except RowError as error:
            own = unmeasured(error)
        failed = {"reward": self.config.parse_failure_penalty, "format_correct": 0.0}
        return verdict(GenerativeRewardModelVerifyResponse, body, failed if own is None else own)

    def _compared(self, body: GenerativeRewardModelVerifyRequest) -> dict[str, Any] | None:
        """The reward and what it is made of; None for scores that can't be read. Raises RowError."""
        gold, rubrics = body.ground_truth_overall or Gold(), body.ground_truth_rubric_scores or []
        if gold.is_empty and all(rubric.is_empty for rubric in rubrics):
            raise RowError(f"row {body.id}: there is no score in ground_truth_overall or ground_truth_rubric_scores")
        said = extract_scores(all_text(body.response))
        distances = rubric_distances(said, rubrics) if said is not None and rubrics else []
        if said is None or distances is None:
            return None
        overall = Distance.between(said.overall, gold)
        total = reward(overall, distances, self._weights())
        if not math.isfinite(total):
            return None
        rankings = [distance.ranking for distance in distances if distance.ranking is not None]
        return {
            "reward": total,
            "predicted_score_1": said.overall.score_1,
            "predicted_score_2": said.overall.score_2,
            "predicted_ranking": said.overall.ranking,
            "format_correct": 1.0,
            "overall_score_1_l1": overall.score_1,
            "overall_score_2_l1": overall.score_2,
            "overall_ranking_l1": overall.ranking,
            "rubric_score_l1": mean_or_none([score for distance in distances for score in distance.scores]),
            "rubric_ranking_l1": mean_or_none(rankings),
            "overall_ranking_binary_acc": same_side(said.overall.ranking, gold.ranking),
        }

    def _weights(self) -> Weights:
        config = self.config
        return Weights(config.score_weight, config.ranking_weight, config.rubric_weight)


if __name__ == "__main__":
    GenerativeRewardModelResourcesServer.run_webserver()
