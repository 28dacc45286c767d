"""IFBench: the reward is the share of a row's instructions that a text follows, or 1 for all of them."""

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from fastapi import FastAPI
from pydantic import Field, PrivateAttr

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.config.errors import ConfigError
from nemo_gym.errors import GymError
from nemo_gym.verifier_fixture import server_fixture
from nemo_gym.verifiers.blame import ORDINARY, verdict_without_end
from nemo_gym.verifiers.instructions.following import Checkers, followed, graded, instruction_pool
from nemo_gym.verifiers.response_text import last_item_text
from nemo_gym.verifiers.verdicts import verdict
from nemo_gym.verifiers.worker_pool import Library, WorkerPool
from resources_servers.ifbench.setup_ifbench import FOLDER, is_installed

REGISTRY = "instructions_registry"
SECONDS = 20.0


class IFBenchResourcesServerConfig(BaseResourcesServerConfig):
    """At most `num_processes` texts, and no more than there are processors, are checked at once. `checkers`: whose
    checks decide; `auto` is the reference implementation if `setup_ifbench.py` has fetched it, else ours."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    num_processes: int = Field(default=32, gt=0)
    checkers: Checkers = "auto"


class IFBenchRunRequest(BaseRunRequest):  # type: ignore[no-redef]
    id: int
    instruction_id_list: list[str]
    prompt: str
    kwargs: list[dict[str, Any] | None]
    grading_mode: str = "fraction"


class IFBenchVerifyRequest(IFBenchRunRequest, BaseVerifyRequest):  # type: ignore[no-redef]
    pass


class IFBenchVerifyResponse(IFBenchVerifyRequest, BaseVerifyResponse):  # type: ignore[no-redef]
    """What is followed by the text as it is, and (loose) by the text or one of its variants."""

    follow_all_instructions: bool = False
    follow_instruction_list: list[bool] = []
    reward_loose: float = 0.0
    follow_all_instructions_loose: bool = False
    follow_instruction_list_loose: list[bool] = []


class IFBenchResourcesServer(SimpleResourcesServer):
    config: IFBenchResourcesServerConfig

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True

    _pool: WorkerPool = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        self._pool = instruction_pool(min(self.config.num_processes, os.cpu_count() or 1))

    def setup_webserver(self) -> FastAPI:
        self.registry()
        return super().setup_webserver()

    async def verify(self, body: IFBenchVerifyRequest) -> IFBenchVerifyResponse:  # type: ignore[override]
        variants = [text for text in _loose_response_variants(last_item_text(body.response)) if text.strip()]
        try:
            strict, loose = await self.following(body, variants)
            own = {"reward": graded(strict, body.grading_mode), "reward_loose": graded(loose, body.grading_mode)}
        except GymError as error:
            own = await verdict_without_end(error, partial(self.following, body, [ORDINARY]))
            return verdict(IFBenchVerifyResponse, body, own)
        return verdict(
            IFBenchVerifyResponse,
            body,
            own,
            follow_all_instructions=all(strict),
            follow_instruction_list=strict,
            follow_all_instructions_loose=all(loose),
            follow_instruction_list_loose=loose,
        )

    async def following(self, body: IFBenchVerifyRequest, variants: Sequence[str]) -> tuple[list[bool], list[bool]]:
        """Which instructions the first of some variants follows, and which any of them does.

        Raises RowError, MissingLibraryError, WorkerError.
        """
        answers = await self._pool.run(
            followed,
            "ifbench",
            body.instruction_id_list,
            body.kwargs,
            list(variants) or [""],
            registry=self.registry(),
            prompt=body.prompt,
            timeout=SECONDS,
        )
        return answers[0], [any(each) for each in zip(*answers, strict=True)]

    def registry(self) -> Library | None:
        """The reference implementation, for a worker; None for our checks. Raises ConfigError where it is missing."""
        if self.config.checkers == "own" or (self.config.checkers == "auto" and not is_installed()):
            return None
        if not is_installed():
            raise ConfigError(f"checkers is package, and IFBench is not in {FOLDER}: run setup_ifbench.py first.")
        if str(FOLDER) not in sys.path:
            sys.path.append(str(FOLDER))
        return Library(REGISTRY)


def _loose_response_variants(text: str) -> list[str]:
    """The text, and without `*`; then without its first line, its last, and both; and these three without `*`."""
    lines = text.split("\n")
    cut = ["\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1])]
    return [text, text.replace("*", ""), *cut, *(each.replace("*", "") for each in cut)]


VERIFIER_FIXTURE = server_fixture(
    IFBenchResourcesServer, IFBenchVerifyRequest, Path(__file__).parent / "tests" / "verifier_cases.jsonl"
)


if __name__ == "__main__":
    IFBenchResourcesServer.run_webserver()
