"""Puzzles and exercises of the library `reasoning-gym`, whose scorers say what an answer is worth."""

from pathlib import Path
from typing import Any, ClassVar

from fastapi import FastAPI
from pydantic import PrivateAttr

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.verifier_fixture import server_fixture
from nemo_gym.verifiers.packages import require_package
from nemo_gym.verifiers.response_text import all_text
from nemo_gym.verifiers.verdicts import RowError, unmeasured, verdict
from nemo_gym.verifiers.worker_pool import Library, WorkerError, WorkerPool
from resources_servers.reasoning_gym.scoring import ScorerError, extract_answer, score

LIBRARY = "reasoning_gym"
SECONDS = 10.0


class ReasoningGymResourcesServerConfig(BaseResourcesServerConfig):
    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS


class ReasoningGymRunRequest(BaseRunRequest):
    """An entry of a data set of the library, which `metadata.source_dataset` names."""

    question: str
    answer: str | None
    metadata: dict[str, Any]


class ReasoningGymVerifyRequest(ReasoningGymRunRequest, BaseVerifyRequest):
    pass


class ReasoningGymVerifyResponse(ReasoningGymVerifyRequest, BaseVerifyResponse):
    """`score` is the reward; `task_name` is null for a row that names no data set."""

    task_name: str | None = None
    score: float = 0.0
    extracted_answer: str | None = None


class ReasoningGymResourcesServer(SimpleResourcesServer):
    config: ReasoningGymResourcesServerConfig

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True

    _pool: WorkerPool = PrivateAttr(default_factory=lambda: WorkerPool(memory_bytes=4 << 30))

    def setup_webserver(self) -> FastAPI:
        require_package(LIBRARY, f"{self.config.name} scores with the package reasoning-gym")
        return super().setup_webserver()

    async def verify(self, body: ReasoningGymVerifyRequest) -> ReasoningGymVerifyResponse:  # type: ignore[override]
        answer = extract_answer(all_text(body.response))
        own: dict[str, Any] = {"extracted_answer": answer}
        try:
            task_name = own["task_name"] = task_name_of(body.metadata)
            reward = await self.scored(task_name, answer, body)
        except (RowError, WorkerError) as error:
            return verdict(ReasoningGymVerifyResponse, body, own | unmeasured(error))
        return verdict(ReasoningGymVerifyResponse, body, own, reward=reward, score=reward)

    async def scored(self, task_name: str, answer: str, body: ReasoningGymVerifyRequest) -> float:
        """What the answer is worth: 0 where it makes the scorer fail that does well with the row's own answer.

        Raises RowError, WorkerError.
        """
        entry = {"question": body.question, "answer": body.answer, "metadata": body.metadata}
        try:
            return await self._pool.run(score, Library(LIBRARY), task_name, answer, entry, timeout=SECONDS)
        except (ScorerError, WorkerError) as error:
            failure = error
        try:
            await self._pool.run(score, Library(LIBRARY), task_name, body.answer or "", entry, timeout=SECONDS)
        except (ScorerError, WorkerError):
            raise RowError(str(failure)) from failure
        return 0.0


def task_name_of(metadata: dict[str, Any]) -> str:
    """The data set that a row is of. Raises RowError."""
    name = metadata.get("source_dataset")
    if not isinstance(name, str) or not name:
        raise RowError("The row's metadata has no source_dataset: it names the data set of reasoning-gym.")
    return name


VERIFIER_FIXTURE = server_fixture(
    ReasoningGymResourcesServer, ReasoningGymVerifyRequest, Path(__file__).parent / "tests" / "verifier_cases.jsonl"
)


if __name__ == "__main__":
    ReasoningGymResourcesServer.run_webserver()
