"""Environment servers: what stands between the collector and the agents, and runs one episode per request."""

from abc import abstractmethod
from asyncio import Semaphore
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Generic, Self, TypeVar

from fastapi import Body, FastAPI, Response
from pydantic import ConfigDict, Field, PositiveFloat, PositiveInt, PrivateAttr, ValidationError, model_validator

from nemo_gym.config_types import AggregateMetrics, AggregateMetricsRequest, BaseRunServerInstanceConfig
from nemo_gym.episode_types import BaseEpisodeRequest, BaseEpisodeResponse, EpisodeFailure
from nemo_gym.rollout_correlation import rollout_context
from nemo_gym.serve.episodes import (
    FAILURE_HEADER,
    LOG,
    CleanupCallback,
    CleanupContext,
    CleanupHandle,
    HandledEpisodeError,
    _CleanupEntry,
    admitted,
    places_of,
    run_bounded,
    unhandled,
)
from nemo_gym.serve.json_app import json_app
from nemo_gym.server_utils import SimpleServer

__all__ = [
    "AggregateMetrics",
    "AggregateMetricsRequest",
    "BaseEnvironmentServer",
    "BaseEnvironmentServerConfig",
    "Body",
    "CleanupCallback",
    "CleanupContext",
    "CleanupHandle",
    "HandledEpisodeError",
    "_CleanupEntry",
]

EpisodeRequestT = TypeVar("EpisodeRequestT", bound=BaseEpisodeRequest[Any])
EpisodeResponseT = TypeVar("EpisodeResponseT", bound=BaseEpisodeResponse[Any])


class BaseEnvironmentServerConfig(BaseRunServerInstanceConfig):
    """Limits of an environment server; times in seconds. `max_concurrent_episodes` is shared by its workers."""

    model_config = ConfigDict(extra="forbid")

    max_concurrent_episodes: PositiveInt | None = None
    queue_timeout_seconds: PositiveFloat | None = None
    default_episode_timeout_seconds: PositiveFloat | None = None
    cleanup_timeout_seconds: float = Field(gt=0)

    @model_validator(mode="after")
    def validate_queue_timeout(self) -> Self:
        """Refuses a queue that could be waited in for ever."""
        if self.max_concurrent_episodes is not None and self.queue_timeout_seconds is None:
            raise ValueError("queue_timeout_seconds is needed with max_concurrent_episodes")
        return self


class BaseEnvironmentServer(SimpleServer, Generic[EpisodeRequestT, EpisodeResponseT]):
    """An environment server: set the two models, implement `run` (one episode) and `aggregate_metrics`."""

    config: BaseEnvironmentServerConfig

    request_model: ClassVar[type[Any]]
    response_model: ClassVar[type[Any]]

    _admission: Semaphore | None = PrivateAttr(default=None)

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        self._admission = places_of(self.config.max_concurrent_episodes, self.config.num_workers)

    def setup_webserver(self) -> FastAPI:
        """The app with the routes every environment server has; overrides add theirs to it."""
        app = json_app()
        app.post("/run")(self._run_route())
        app.post("/aggregate_metrics")(self.aggregate_metrics)
        return app

    def _run_route(self) -> Callable[..., Awaitable[EpisodeResponseT]]:
        async def run(request: Any, response: Response) -> Any:
            answer = await self.run_request(request)
            if answer.failure is not None:
                response.headers[FAILURE_HEADER] = answer.failure.stage or "episode"
            return answer

        run.__annotations__ |= {"request": self.request_model, "return": self.response_model}
        return run

    async def run_request(self, request: EpisodeRequestT) -> EpisodeResponseT:
        """The episode's result or its failure: whatever goes wrong is a failure, except being cancelled."""
        try:
            async with admitted(self._admission, self.config.queue_timeout_seconds):
                answer = await self._run_admitted(request)
            response: EpisodeResponseT = self.response_model.model_validate(answer)
            self.validate_response_identity(request, response)
            return response
        except HandledEpisodeError as handled:
            return self.failure_response(request, handled.failure)
        except Exception as error:
            return self._unhandled_failure_response(request, error)

    async def _run_admitted(self, request: EpisodeRequestT) -> Any:
        cleanup = CleanupContext(request.episode_id, self.config.cleanup_timeout_seconds)
        with rollout_context(request.episode_id.capture_key):
            return await run_bounded(
                lambda cleanup: self.run(request, cleanup), cleanup, self.config.default_episode_timeout_seconds
            )

    @abstractmethod
    async def run(self, request: EpisodeRequestT, cleanup: CleanupContext) -> EpisodeResponseT:
        """One episode. Raise HandledEpisodeError to end it with a failure of your own."""

    def _unhandled_failure_response(self, request: EpisodeRequestT, error: Exception) -> EpisodeResponseT:
        LOG.error("Episode %s failed", request.episode_id.capture_key, exc_info=error)
        return self.failure_response(request, unhandled(error))

    def failure_response(self, request: EpisodeRequestT, failure: EpisodeFailure) -> EpisodeResponseT:
        """The answer that says that, and why, the episode has no result."""
        fields: dict[str, Any] = {"episode_id": request.episode_id, "task_id": request.task.task_id}
        response: EpisodeResponseT
        try:
            response = self.response_model.model_validate({**fields, "failure": failure})
        except ValidationError:
            # The response wants its own class of failure: give it the fields.
            response = self.response_model.model_validate({**fields, "failure": failure.model_dump()})
        return response

    @staticmethod
    def validate_response_identity(request: EpisodeRequestT, response: EpisodeResponseT) -> None:
        """Raises ValueError for a response to another episode or task."""
        if (response.episode_id, response.task_id) != (request.episode_id, request.task.task_id):
            raise ValueError(
                f"the response is of episode {response.episode_id.capture_key!r}, task {response.task_id.task_id!r}: "
                f"asked for was episode {request.episode_id.capture_key!r}, task {request.task.task_id.task_id!r}"
            )

    @abstractmethod
    async def aggregate_metrics(self, body: AggregateMetricsRequest = Body()) -> AggregateMetrics:
        """Metrics of a whole run."""
