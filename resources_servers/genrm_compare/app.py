"""Answers compared with each other: the reward is what a reward model makes of one beside others to the same prompt."""

import asyncio
import logging
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar, NoReturn

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer
from nemo_gym.config.errors import ConfigError
from nemo_gym.global_config import ROLLOUT_INDEX_KEY_NAME, TASK_INDEX_KEY_NAME
from nemo_gym.judge import JudgeError
from nemo_gym.serve.failures import CAUSE_HEADER, Cause
from nemo_gym.verifiers.verdicts import verdict
from resources_servers.genrm_compare.aggregation import Comparison
from resources_servers.genrm_compare.cohorts import (
    CohortConflictError,
    CohortFailedError,
    CohortKey,
    Cohorts,
    Member,
    Reason,
)
from resources_servers.genrm_compare.comparing import Comparer
from resources_servers.genrm_compare.conversations import (
    Turn,
    digest,
    extract_conversation_history,
    get_prompt_key,
    plain,
)
from resources_servers.genrm_compare.conversations import extract_conversation_history as _input_to_conversation_history
from resources_servers.genrm_compare.settings import GenRMCompareConfig

__all__ = ["GenRMCompareConfig", "_input_to_conversation_history"]

GROUP_ID_KEY_NAME = "_ng_group_id"
GROUP_ATTEMPT_KEY_NAME = "_ng_group_attempt"
LOG = logging.getLogger(__name__)


class GroupPlace(BaseModel):
    """Where a rollout belongs: which group, which attempt at it, and which of its rollouts."""

    model_config = ConfigDict(populate_by_name=True, serialize_by_alias=True)

    ng_group_id: str | int | None = Field(default=None, alias=GROUP_ID_KEY_NAME)
    ng_group_attempt: int = Field(default=0, ge=0, alias=GROUP_ATTEMPT_KEY_NAME)
    ng_rollout_index: int | None = Field(default=None, alias=ROLLOUT_INDEX_KEY_NAME)


class GenRMCompareRunRequest(GroupPlace, BaseRunRequest):
    """`principle` is what the answers are judged by, where principles are used."""

    model_config = ConfigDict(extra="allow", populate_by_name=True, serialize_by_alias=True)

    principle: str | None = None
    prompt_id: str | int | None = None
    ng_task_index: int | None = Field(default=None, alias=TASK_INDEX_KEY_NAME)


class GenRMCompareVerifyRequest(GenRMCompareRunRequest, BaseVerifyRequest):
    pass


class GenRMCompareVerifyResponse(GroupPlace, BaseVerifyResponse):
    pass


class GenRMCompareRequest(BaseModel):
    """Responses to one conversation, as JSON of the Responses API."""

    conversation_history: list[dict[str, Any]]
    response_objs: list[dict[str, Any]]
    principle: str | None = None


class GenRMCompareResponse(BaseModel):
    """`rewards` in the order of the responses."""

    rewards: list[float]
    comparison_results: list[Comparison] = []
    metrics: dict[str, float] = {}


class GenRMCompareResourcesServer(SimpleResourcesServer):
    config: GenRMCompareConfig

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True

    _comparer: Comparer = PrivateAttr()
    _cohorts: Cohorts[GenRMCompareVerifyRequest] = PrivateAttr()
    _has_warned: bool = PrivateAttr(default=False)

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        config = self.config
        if config.num_rollouts_per_prompt > 1 and (config.num_workers or 1) > 1:
            raise ConfigError(
                f"{config.name} compares the {config.num_rollouts_per_prompt} rollouts of a prompt with each other, so "
                f"they must meet in one process: set its num_workers to 1 (it is {config.num_workers})."
            )
        self._comparer = Comparer(config, self.server_client)
        self._cohorts = Cohorts(config.num_rollouts_per_prompt, config.patience(), self._rewards)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/compare")(self.compare)
        inner = app.router.lifespan_context

        @asynccontextmanager
        async def lifespan(started: Any) -> AsyncIterator[Any]:
            async with inner(started) as state:
                try:
                    yield state
                finally:
                    self._cohorts.shut_down()

        app.router.lifespan_context = lifespan
        return app

    async def verify(self, body: GenRMCompareVerifyRequest) -> GenRMCompareVerifyResponse:  # type: ignore[override]
        """Wait for the other rollouts of the prompt, and get the reward that comes of comparing all of them.

        HTTPException 422 for a rollout without a place, 409 for one that doesn't belong where it says, 503 where its
        cohort came to nothing; JudgeError where the reward model couldn't be asked.
        """
        config, index = self.config, body.ng_rollout_index
        if config.num_rollouts_per_prompt <= 1:
            return verdict(GenRMCompareVerifyResponse, body, reward=config.default_score)
        if index is None or not 0 <= index < config.num_rollouts_per_prompt:
            most = config.num_rollouts_per_prompt - 1
            raise HTTPException(422, f"{ROLLOUT_INDEX_KEY_NAME} is {index}: it must be a number from 0 to {most}.")
        member = await asyncio.to_thread(_member, index, body)
        try:
            reward = await self._cohorts.reward_of(self._key(body, member.prompt), member)
        except CohortConflictError as error:
            raise HTTPException(409, str(error)) from error
        except CohortFailedError as error:
            if error.reason is Reason.JUDGE:
                raise JudgeError(str(error)) from error
            self._refuse(error)
        return verdict(GenRMCompareVerifyResponse, body, reward=reward)

    async def compare(self, body: GenRMCompareRequest) -> GenRMCompareResponse:
        """Compare responses that are all there. HTTPException 503 where the reward model couldn't be asked."""
        history = extract_conversation_history(body.conversation_history)
        try:
            rewards, comparisons, metrics = await self._comparer.compare(
                history, body.response_objs, self._principle(body.principle)
            )
        except JudgeError as error:
            self._refuse(CohortFailedError(Reason.JUDGE, str(error)))
        return GenRMCompareResponse(rewards=rewards, comparison_results=comparisons, metrics=metrics)

    async def _rewards(self, bodies: list[GenRMCompareVerifyRequest]) -> list[float]:
        """Of a cohort that is complete. Raises JudgeError."""
        history: list[Turn] = extract_conversation_history(bodies[0].responses_create_params)
        responses = [body.response for body in bodies]
        rewards, comparisons, metrics = await self._comparer.compare(
            history, responses, self._principle(bodies[0].principle)
        )
        if self.config.debug_logging:
            LOG.info("rewards %s, %s, from %s", rewards, metrics, [each.model_dump() for each in comparisons])
        return rewards

    def _principle(self, own: str | None) -> str | None:
        return (own or self.config.default_principle) if self.config.use_principle else None

    def _key(self, body: GenRMCompareVerifyRequest, prompt: str) -> CohortKey:
        if body.ng_group_id is not None:
            self._warn_without_attempt(body)
            return CohortKey(body.ng_group_id, body.ng_group_attempt)
        for name, value in (("task", body.ng_task_index), ("prompt_id", body.prompt_id)):
            if value is not None:
                return CohortKey(None, body.ng_group_attempt, (name, str(value), prompt))
        return CohortKey(None, body.ng_group_attempt, ("prompt", prompt))

    def _warn_without_attempt(self, body: GenRMCompareVerifyRequest) -> None:
        if "ng_group_attempt" not in body.model_fields_set and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"{GROUP_ID_KEY_NAME} came without {GROUP_ATTEMPT_KEY_NAME}, which is taken to be 0: send it, so that "
                "a group can be tried again.",
                stacklevel=2,
            )

    def _refuse(self, error: CohortFailedError) -> NoReturn:
        """As a 503 whose cause names the failure's kind, which records then carry."""
        cause = Cause(self.config.name, type(error).__name__, str(error)[:500], kind=error.failure_kind)
        raise HTTPException(503, str(error), {CAUSE_HEADER: cause.header().decode("ascii")}) from error


def _member(index: int, body: GenRMCompareVerifyRequest) -> Member[GenRMCompareVerifyRequest]:
    return Member(index, get_prompt_key(body), digest(plain(body.response)), body)


if __name__ == "__main__":
    GenRMCompareResourcesServer.run_webserver()
