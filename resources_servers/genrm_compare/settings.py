"""The config of the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, FiniteFloat

from nemo_gym.base_resources_server import BaseResourcesServerConfig, ReverifyMode
from nemo_gym.config_types import ModelServerRef
from nemo_gym.openai_utils import NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.verifiers.judges import template_at
from resources_servers.genrm_compare.aggregation import Adjustments, AggregatorMethod
from resources_servers.genrm_compare.cohorts import Patience
from resources_servers.genrm_compare.verdicts import TIE, PairStrategy

_HERE = Path(__file__).parent


def _own_principle() -> str:
    return template_at("default_principle", "prompt_templates/principle.txt", _HERE)


class GenRMCompareConfig(BaseResourcesServerConfig):
    """Times in seconds. With one of `num_rollouts_per_prompt` nothing is compared: it gets `default_score`.

    `fail_on_unparsable`: a reply without scores fails the group, as a judge that can't be asked does.
    """

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.UNSUPPORTED

    genrm_model_server: ModelServerRef
    genrm_responses_create_params: NeMoGymResponseCreateParamsNonStreaming
    num_rollouts_per_prompt: int = Field(default=1, ge=1)
    cohort_collection_timeout_s: float = Field(default=1800.0, gt=0)
    cohort_evaluation_timeout_s: float = Field(default=1800.0, gt=0)
    judge_request_timeout_s: float = Field(default=1800.0, gt=0)
    cohort_result_ttl_s: float | None = Field(default=3600.0, gt=0)
    max_terminal_cohorts: int = Field(default=4096, ge=0)
    comparison_strategy: PairStrategy = "circular"
    num_judges_per_comparison: int = Field(default=1, ge=1)
    use_principle: bool = False
    default_principle: str = Field(default_factory=_own_principle)
    aggregator_method: AggregatorMethod = "simple_tiebreaker"
    reasoning_bonus: FiniteFloat = 0.0
    answer_bonus: FiniteFloat = 0.0
    top_percentile: float = Field(default=0.2, ge=0, le=1)
    group_reasoning_length_penalty_coeff: FiniteFloat = 0.0
    group_answer_length_penalty_coeff: FiniteFloat = 0.0
    group_style_penalty_coeff: FiniteFloat = 0.0
    default_score: FiniteFloat = 3.0
    default_ranking: FiniteFloat = TIE
    debug_logging: bool = False
    genrm_parse_retries: int = Field(default=3, ge=0)
    genrm_parse_retry_sleep_s: float = Field(default=0.2, ge=0)
    fail_on_unparsable: bool = False

    def patience(self) -> Patience:
        return Patience(
            collection=self.cohort_collection_timeout_s,
            evaluation=self.cohort_evaluation_timeout_s,
            remembered=self.cohort_result_ttl_s,
            most_remembered=self.max_terminal_cohorts,
        )

    def adjustments(self) -> Adjustments:
        names = Adjustments.__dataclass_fields__
        own: dict[str, Any] = {name: getattr(self, name) for name in names}
        return Adjustments(**own)
