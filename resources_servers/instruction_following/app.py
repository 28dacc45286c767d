"""Verifiable instructions: the reward is 1 when a text follows all instructions of its row, or the share it follows."""

from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, PrivateAttr, model_validator

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.errors import GymError
from nemo_gym.verifier_fixture import server_fixture
from nemo_gym.verifiers.blame import ORDINARY, verdict_without_end
from nemo_gym.verifiers.instructions.following import Checkers, followed, graded, instruction_pool, package_there
from nemo_gym.verifiers.response_text import last_item_text
from nemo_gym.verifiers.verdicts import verdict
from nemo_gym.verifiers.worker_pool import Library, WorkerPool

REGISTRY = "verifiable_instructions.instructions_registry"
SECONDS = 10.0
MOVED = ("instruction_id_list", "prompt", "kwargs", "grading_mode")


class InstructionFollowingResourcesServerConfig(BaseResourcesServerConfig):
    """`checkers`: whose checks decide; `auto` is the package `verifiable_instructions` if it is there, else ours."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    checkers: Checkers = "auto"


class InstructionFollowingMetadata(BaseModel):  # type: ignore[no-redef]
    model_config = ConfigDict(extra="allow")

    instruction_id_list: list[str]
    prompt: str
    kwargs: list[dict[str, Any] | None]
    grading_mode: str = "binary"


class InstructionFollowingRunRequest(BaseRunRequest):
    """The task's fields may stand at the top instead of in `verifier_metadata`, which goes before."""

    id: int
    verifier_metadata: InstructionFollowingMetadata

    @model_validator(mode="before")
    @classmethod
    def move_to_metadata(cls, row: Any) -> Any:
        if not isinstance(row, dict):
            return row
        nested = row.get("verifier_metadata")
        if nested is not None and not isinstance(nested, dict):
            return row
        moved = {name: row[name] for name in MOVED if name in row}
        return {**row, "verifier_metadata": {**moved, **(nested or {})}}


class InstructionFollowingVerifyRequest(InstructionFollowingRunRequest, BaseVerifyRequest):
    pass


class InstructionFollowingVerifyResponse(InstructionFollowingVerifyRequest, BaseVerifyResponse):
    """`follow_instruction_list` says for each instruction whether it is followed."""

    follow_all_instructions: bool
    follow_instruction_list: list[bool]


class InstructionFollowingResourcesServer(SimpleResourcesServer):
    config: InstructionFollowingResourcesServerConfig

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True

    _pool: WorkerPool = PrivateAttr(default_factory=instruction_pool)

    async def verify(  # type: ignore[override]
        self, body: InstructionFollowingVerifyRequest
    ) -> InstructionFollowingVerifyResponse:
        task = body.verifier_metadata
        try:
            following = await self.following(task, last_item_text(body.response))
            reward = graded(following, task.grading_mode)
        except GymError as error:
            fields = await verdict_without_end(error, partial(self.following, task, ORDINARY))
            own = {**fields, "follow_all_instructions": False, "follow_instruction_list": []}
            return verdict(InstructionFollowingVerifyResponse, body, own)
        return verdict(
            InstructionFollowingVerifyResponse,
            body,
            reward=reward,
            follow_all_instructions=all(following),
            follow_instruction_list=following,
        )

    async def following(self, task: InstructionFollowingMetadata, text: str) -> list[bool]:
        """Which instructions the text follows. Raises RowError, MissingLibraryError, WorkerError."""
        uses_package = self.config.checkers == "package" or (
            self.config.checkers == "auto" and package_there(REGISTRY.partition(".")[0])
        )
        answer = await self._pool.run(
            followed,
            "training",
            task.instruction_id_list,
            task.kwargs,
            [text],
            registry=Library(REGISTRY) if uses_package else None,
            timeout=SECONDS,
        )
        return answer[0]


VERIFIER_FIXTURE = server_fixture(
    InstructionFollowingResourcesServer,
    InstructionFollowingVerifyRequest,
    Path(__file__).parent / "tests" / "verifier_cases.jsonl",
)


if __name__ == "__main__":
    InstructionFollowingResourcesServer.run_webserver()
