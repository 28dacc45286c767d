"""The resources server of an environment in one file: `EnvironmentResourcesServer`, and `Environment` itself."""

import asyncio
import inspect
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, TypeVar

from aiohttp import ClientError
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import ConfigDict, Field, PrivateAttr

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ResourcesSeedSessionRequest,
    ResourcesSeedSessionResponse,
    ReverifyMode,
    SessionStore,
    SimpleResourcesServer,
)
from nemo_gym.judge import JudgeError
from nemo_gym.onefile.environment import Environment
from nemo_gym.onefile.episode import MOST_LOGGED, Episode, ToolFailure, as_text
from nemo_gym.onefile.errors import EnvironmentFileError, EnvironmentRunError
from nemo_gym.onefile.example_rows import ENVIRONMENT_FILE, stale_rows
from nemo_gym.onefile.loading import load_environment
from nemo_gym.onefile.tasks import task_of
from nemo_gym.onefile.tools import Tool
from nemo_gym.schema.failure_kinds import VERIFIER_ERROR
from nemo_gym.serve.deadline import DeadlineExceededError
from nemo_gym.serve.failures import CAUSE_HEADER, Cause
from nemo_gym.serve.redaction import shown
from nemo_gym.server_utils import SESSION_ID_KEY

__all__ = ["Environment", "EnvironmentResourcesServer", "EnvironmentResourcesServerConfig"]

LOG = logging.getLogger(__name__)
_MOST_TOLD = 500
_OTHERS = ClientError | DeadlineExceededError | HTTPException | JudgeError
"""Failures of others, which say themselves what they are."""
ResultT = TypeVar("ResultT")


class EnvironmentResourcesServerConfig(BaseResourcesServerConfig):
    """`source_file` is what `environment.py` is a copy of, for messages.

    Without `checks_example_rows` the example rows of a folder may be others than the tasks in its `environment.py`.
    """

    source_file: str | None = None
    checks_example_rows: bool = True


class EnvironmentSeedSessionRequest(BaseSeedSessionRequest):
    model_config = ConfigDict(extra="allow")


class EnvironmentVerifyRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")


class EnvironmentVerifyResponse(BaseVerifyResponse):
    """The row, with why it was rewarded so, and by what parts."""

    model_config = ConfigDict(extra="allow")

    reward_reason: str = ""
    reward_components: dict[str, float] = Field(default_factory=dict)


class EnvironmentResourcesServer(SimpleResourcesServer):
    """Serves `environment`, or the one in the `environment.py` beside the subclass."""

    config: EnvironmentResourcesServerConfig

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True
    environment: ClassVar[Environment | None] = None

    _environment: Environment = PrivateAttr()
    _episodes: SessionStore[Episode] = PrivateAttr(default_factory=SessionStore)

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        self._environment = self.environment or self._beside()
        folder = Path(inspect.getfile(type(self))).parent
        is_grown = self.environment is not None and (folder / ENVIRONMENT_FILE).is_file()
        if is_grown and self.config.checks_example_rows and (stale := stale_rows(self._environment, folder)):
            raise EnvironmentFileError(f"{stale} (Or set `checks_example_rows: false` in its config.)")

    def _beside(self) -> Environment:
        path = Path(inspect.getfile(type(self))).with_name(ENVIRONMENT_FILE)
        return load_environment(path, written_at=Path(self.config.source_file) if self.config.source_file else None)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        for tool in self._environment.tools.values():
            app.post(f"/{tool.name}", description=tool.description)(self._route(tool))
        return app

    def _route(self, tool: Tool) -> Any:
        async def call(request: Request, body: Any) -> Response:
            episode = self._episodes.get(request.session[SESSION_ID_KEY])
            if episode is None and tool.provided:
                raise HTTPException(400, "Session not initialized: call /seed_session first.")
            try:
                result = await (episode or Episode(self._environment, {})).call(tool, body)
                text = as_text(result)
            except ToolFailure as failure:
                return JSONResponse({"error": str(failure)}, 400)
            return PlainTextResponse(text) if isinstance(result, str) else Response(text, media_type="application/json")

        call.__name__ = tool.name
        call.__doc__ = tool.description
        call.__annotations__["body"] = tool.arguments
        return call

    def _holds_sessions(self) -> bool:
        return self._environment.new_state is not None

    async def get_reverify_mode(self) -> str:
        """What needs the state of an episode can't be judged without it."""
        mode = ReverifyMode.UNSUPPORTED if self._holds_sessions() else ReverifyMode.STATELESS
        return str(mode.value)

    async def seed_session(  # type: ignore[override]
        self, request: Request, body: ResourcesSeedSessionRequest | EnvironmentSeedSessionRequest
    ) -> ResourcesSeedSessionResponse | BaseSeedSessionResponse:
        """Begin the episode; one that may be seeded again stays as it is."""
        session_id = request.session[SESSION_ID_KEY]
        if not isinstance(body, ResourcesSeedSessionRequest):
            self._episodes[session_id] = await self._begun(task_of(body.model_extra or {}))
        elif session_id not in self._episodes:
            self._episodes[session_id] = await self._begun(dict(body.task_data))
        return await super().seed_session(body)

    async def _begun(self, task: dict[str, Any]) -> Episode:
        beginning = Episode.begin(self._environment, task)
        return await self._told(self._environment.new_state or Episode.begin, beginning)

    async def _told(self, function: Callable[..., Any], result: Awaitable[ResultT]) -> ResultT:
        """What a function of the file gave. What it raised is answered as the environment's failure, with its line."""
        try:
            return await result
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:  # a `sys.exit()` in a file is its failure, too
            if isinstance(error, _OTHERS):
                raise
            own = isinstance(error, EnvironmentFileError)
            told = error if own else EnvironmentRunError.of(error, function, self._environment.file)
            text = shown(str(told), MOST_LOGGED)
            LOG.error("%s", text)
            cause = Cause(
                self.get_session_middleware_key(), type(error).__name__, text[:_MOST_TOLD], kind=VERIFIER_ERROR
            )
            raise HTTPException(500, text, {CAUSE_HEADER: cause.header().decode()}) from error

    async def verify(self, request: Request, body: EnvironmentVerifyRequest) -> EnvironmentVerifyResponse:  # type: ignore[override]
        """What the file's verifier says of what the model did."""
        episode = self._episodes.get(request.session[SESSION_ID_KEY])
        if episode is None and self._holds_sessions():
            raise HTTPException(400, "Session not initialized: call /seed_session first.")
        episode = episode or Episode(self._environment, task_of(body.model_extra or {}))
        verdict = await self._told(self._environment.verifier, episode.verify(body.response))
        own = {"reward": verdict.reward, "reward_reason": verdict.reason, "reward_components": verdict.parts}
        return EnvironmentVerifyResponse.model_validate(dict(body) | own)

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        """The means of the reward's parts, over the rollouts that have them."""
        found: dict[str, list[float]] = defaultdict(list)
        for record in chain.from_iterable(tasks):
            for name, value in (record.get("reward_components") or {}).items():
                found[name].append(value)
        return {f"mean/reward_components/{name}": fmean(values) for name, values in sorted(found.items())}
