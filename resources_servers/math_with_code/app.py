"""Mathematical problems with a Python interpreter: the reward is 1 when the answer in a box is the expected one."""

from typing import Any, ClassVar

from fastapi import FastAPI, Request
from pydantic import BaseModel, Field, PrivateAttr

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
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
from nemo_gym.server_utils import SESSION_ID_KEY
from nemo_gym.verifiers.code_runner import CodeRunner, require_isolation
from nemo_gym.verifiers.python_session import Namespace, PythonSession, Ran
from nemo_gym.verifiers.verdicts import verdict
from resources_servers.math_with_code.answers import answers_match as _answers_match
from resources_servers.math_with_code.answers import boxed_answer as _extract_boxed_answer
from resources_servers.math_with_code.answers import extracted_answer
from resources_servers.math_with_code.answers import normalized as _normalize_answer

__all__ = ["_answers_match", "_extract_boxed_answer", "_normalize_answer"]

_LIBRARIES = {"np": "numpy", "numpy": "numpy", "scipy": "scipy", "pd": "pandas", "pandas": "pandas"}
_BUILTINS = (
    "print len str int float list dict tuple set min max sum abs range enumerate zip __import__".split()  # noqa: SIM905
)
_FEW_BUILTINS = Namespace(_BUILTINS, _LIBRARIES, one_namespace=False)
_ALL_OF_PYTHON = Namespace(None, _LIBRARIES)


class PythonExecutorResourcesServerConfig(BaseResourcesServerConfig):
    """`max_execution_time` in seconds, for each call.

    `all_of_python`: code runs as in a script. Otherwise it has few builtins, and its functions see only themselves and
    libraries. Interpreters of more than `max_sessions` sessions, and those that were not used for
    `session_idle_seconds`, are ended. `allow_unsandboxed`: where this machine offers no isolation, run code as this
    user all the same.
    """

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    max_execution_time: float = Field(default=10, gt=0)
    all_of_python: bool = False
    max_sessions: int = Field(default=1024, gt=0)
    session_idle_seconds: float = Field(default=3600, gt=0)
    allow_unsandboxed: bool = False


class ExecutePythonRequest(BaseModel):
    code: str


class ExecutePythonResponse(BaseModel):
    """What the model reads. `result` is the value of the last line, as text."""

    success: bool
    stdout: str = ""
    stderr: str = ""
    error_message: str | None = None
    result: str | None = None


class EndSessionResponse(BaseModel):
    success: bool = True


class PythonExecutorRunRequest(BaseRunRequest):
    expected_result: str
    expected_code_contains: str = ""
    id: int | str | None = None


class PythonExecutorVerifyRequest(PythonExecutorRunRequest, BaseVerifyRequest):
    pass


class PythonExecutorVerifyResponse(BaseVerifyResponse):
    """`accuracy` is the reward."""

    expected_result: str
    expected_code_contains: str = ""
    id: int | str | None = None
    extracted_answer: str | None = None
    accuracy: float


class PythonExecutorResourcesServer(SimpleResourcesServer):
    config: PythonExecutorResourcesServerConfig

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True

    _sessions: SessionStore[PythonSession] = PrivateAttr()
    _runner: CodeRunner = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        self._runner = CodeRunner(packages=True, allow_unsandboxed=self.config.allow_unsandboxed)
        self._sessions = SessionStore(
            idle_seconds=self.config.session_idle_seconds,
            max_sessions=self.config.max_sessions,
            release=PythonSession.close_soon,
        )

    def setup_webserver(self) -> FastAPI:
        require_isolation(self.config.name, allow_unsandboxed=self.config.allow_unsandboxed)
        app = super().setup_webserver()
        app.post("/execute_python")(self.execute_python)
        app.post("/end_session")(self.end_session)
        return app

    async def seed_session(  # type: ignore[override]
        self, request: Request, body: ResourcesSeedSessionRequest | BaseSeedSessionRequest
    ) -> ResourcesSeedSessionResponse | BaseSeedSessionResponse:
        """Give the session an interpreter of its own; an episode's, which may be seeded again, keeps the one it has."""
        session_id = request.session[SESSION_ID_KEY]
        if isinstance(body, ResourcesSeedSessionRequest):
            self._sessions.setdefault(session_id, self._new_session())
        else:
            self._sessions.close(session_id)
            self._sessions[session_id] = self._new_session()
        return await super().seed_session(body)

    async def execute_python(self, request: Request, body: ExecutePythonRequest) -> ExecutePythonResponse:
        """Run code in the session's interpreter; mistakes are told to the model."""
        session = self._sessions.setdefault(request.session[SESSION_ID_KEY], self._new_session())
        ran = await session.run(body.code, self.config.max_execution_time)
        return _told(ran)

    async def end_session(self, request: Request) -> EndSessionResponse:
        """End the session's interpreter. Another call would begin a new one."""
        session = self._sessions.find(request.session[SESSION_ID_KEY])
        if session is not None:
            await session.close()
        return EndSessionResponse()

    async def verify(self, request: Request, body: PythonExecutorVerifyRequest) -> PythonExecutorVerifyResponse:  # type: ignore[override]
        """Whether the answer of the response is the expected one. The session is over, whatever comes of it."""
        try:
            answer = extracted_answer(body.response)
            reward = float(answer is not None and _answers_match(answer, body.expected_result))
            return verdict(PythonExecutorVerifyResponse, body, reward=reward, extracted_answer=answer, accuracy=reward)
        finally:
            self._sessions.close(request.session[SESSION_ID_KEY])

    def _new_session(self) -> PythonSession:
        """Nothing runs yet."""
        return PythonSession(self._runner, _ALL_OF_PYTHON if self.config.all_of_python else _FEW_BUILTINS)


def _told(ran: Ran) -> ExecutePythonResponse:
    if ran.error is not None:
        return ExecutePythonResponse(success=False, error_message=ran.error)
    return ExecutePythonResponse(success=True, stdout=ran.stdout, stderr=ran.stderr, result=ran.value)


if __name__ == "__main__":
    PythonExecutorResourcesServer.run_webserver()
