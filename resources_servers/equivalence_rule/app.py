"""Free answers compared with the expected text: equal or not, or how much of it is there in the same order."""

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import Any, ClassVar

from pydantic import ConfigDict, Field, PrivateAttr

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.verifiers.blame import verdict_without_end
from nemo_gym.verifiers.long_texts import read_apart
from nemo_gym.verifiers.response_text import all_text
from nemo_gym.verifiers.verdicts import RowError, verdict
from nemo_gym.verifiers.worker_pool import WorkerError, WorkerPool
from resources_servers.equivalence_rule.similarity import normalized as _normalize
from resources_servers.equivalence_rule.similarity import similarity, weighted_similarity

__all__ = ["_normalize"]

_WORKER_BYTES = 2 << 30


class GradingRule(StrEnum):
    EXACT = "exact"
    SEQ_MATCH = "seq_match"
    WEIGHTED_SEQ_MATCH = "weighted_seq_match"


class EquivalenceRuleResourcesServerConfig(BaseResourcesServerConfig):
    """One comparison may take `comparison_timeout_seconds`."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    grading_rule: GradingRule = GradingRule.EXACT
    comparison_timeout_seconds: float = Field(default=60.0, gt=0)


class EquivalenceRuleRunRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")

    expected_answer: str


class EquivalenceRuleVerifyRequest(EquivalenceRuleRunRequest, BaseVerifyRequest):
    pass


class EquivalenceRuleVerifyResponse(BaseVerifyResponse):
    """The row with `equivalence_score`, which is the reward."""

    model_config = ConfigDict(extra="allow")

    expected_answer: str
    equivalence_score: float


class EquivalenceRuleResourcesServer(SimpleResourcesServer):
    config: EquivalenceRuleResourcesServerConfig

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True

    _pool: WorkerPool = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        self._pool = WorkerPool(memory_bytes=_WORKER_BYTES)

    async def verify(self, body: EquivalenceRuleVerifyRequest) -> EquivalenceRuleVerifyResponse:  # type: ignore[override]
        text = all_text(body.response)
        response, answer = await read_apart(len(text), _normalize, text), _normalize(body.expected_answer)
        own: dict[str, Any] = {"reward": 0.0}
        try:
            own["reward"] = await self.score(response, answer)
        except (RowError, WorkerError) as error:
            own = await verdict_without_end(error, partial(self.score, answer, answer))
        return verdict(EquivalenceRuleVerifyResponse, body, own, equivalence_score=own["reward"])

    async def score(self, response: str, answer: str) -> float:
        """The score of a response, both normalised. Raises RowError, WorkerError."""
        if not answer:
            raise RowError("expected_answer is blank, so that no answer would be the right one: give it a text")
        if self.config.grading_rule is GradingRule.EXACT:
            return float(response == answer)
        compare = _COMPARISONS[self.config.grading_rule]
        seconds = self.config.comparison_timeout_seconds
        found = await self._pool.run(compare, response, answer, timeout=seconds)
        return min(max(found, 0.0), 1.0)


_COMPARISONS: dict[GradingRule, Callable[[str, str], float]] = {
    GradingRule.SEQ_MATCH: similarity,
    GradingRule.WEIGHTED_SEQ_MATCH: weighted_similarity,
}


if __name__ == "__main__":
    EquivalenceRuleResourcesServer.run_webserver()
