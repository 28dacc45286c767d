"""Competitive programming: the reward is 1 when a Python program passes all its unit tests."""

import asyncio
import logging
from pathlib import Path
from typing import Any, ClassVar

from fastapi import FastAPI

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.verifier_fixture import server_fixture
from nemo_gym.verifiers.code_runner import CodeRunnerError, require_isolation
from nemo_gym.verifiers.extraction import last_fence
from nemo_gym.verifiers.metrics import PassMetricsMixin
from nemo_gym.verifiers.response_text import all_text
from nemo_gym.verifiers.verdicts import RowError, unmeasured, verdict
from resources_servers.code_gen.checking import GLOBAL_TIMEOUT, Verdict, check, code_runner
from resources_servers.code_gen.unit_tests import UnitTests

logger = logging.getLogger(__name__)
_TAGS = ("<think>", "</think>")


class CompCodingResourcesServerConfig(BaseResourcesServerConfig):
    """`num_processes` programs run at once, each test for `unit_test_timeout_secs` at most. `debug` logs verdicts.

    `reasoning_format_penalty` is the reward of a response with reasoning in its text. `allow_unsandboxed`: where this
    machine offers no isolation, run programs as this user all the same.
    """

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    num_processes: int
    unit_test_timeout_secs: int
    debug: bool
    reasoning_format_penalty: float = 0.0
    allow_unsandboxed: bool = False


class CompCodingRunRequest(BaseRunRequest):
    """`verifier_metadata` holds `unit_tests` and `difficulty`."""

    verifier_metadata: dict[str, Any] | None = None


class CompCodingVerifyRequest(CompCodingRunRequest, BaseVerifyRequest):
    pass


class CompCodingVerifyResponse(BaseVerifyResponse):
    """`result` has True for a test passed and a negative code for the first that wasn't, with which it ends."""

    extracted_model_output: str | None = None
    extracted_model_code: str | None = None
    result: list[bool | int] | None = None
    metadata: dict[str, Any] | None = None
    unit_tests_time_taken: float | None = None
    reasoning_format_violation_rate: float | None = None
    difficulty: str | None = None


class CompCodingResourcesServer(PassMetricsMixin, SimpleResourcesServer):
    config: CompCodingResourcesServerConfig

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True
    answer_key: ClassVar[str | None] = "extracted_model_code"
    subset_key: ClassVar[str | None] = "difficulty"
    sample_deviation: ClassVar[bool] = True

    def setup_webserver(self) -> FastAPI:
        require_isolation(self.config.name, allow_unsandboxed=self.config.allow_unsandboxed)
        return super().setup_webserver()

    async def verify(self, body: CompCodingVerifyRequest) -> CompCodingVerifyResponse:  # type: ignore[override]
        metadata = body.verifier_metadata or {}
        own = await self.judged(body.response, metadata)
        return verdict(CompCodingVerifyResponse, body, own, difficulty=metadata.get("difficulty"))

    async def judged(self, response: NeMoGymResponse, metadata: dict[str, Any]) -> dict[str, Any]:
        """The reward, and what it is based on."""
        text = all_text(response)
        if not text.strip():
            return {"reward": 0.0}
        if metadata.get("unit_tests") is None:
            return unmeasured(RowError("The row has no verifier_metadata.unit_tests: give it `inputs` and `outputs`."))
        code = last_fence(text)
        if not code:
            return {"reward": 0.0, "extracted_model_output": text}
        found = {"extracted_model_output": text, "extracted_model_code": code}
        try:
            checked = await self.check(code, metadata["unit_tests"])
        except (RowError, CodeRunnerError) as error:
            return found | unmeasured(error) | _global_failure(error)
        if self.config.debug:
            logger.info("%s: %s", checked.result, checked.metadata)
        violates = breaks_reasoning_format(response)
        reward = self.config.reasoning_format_penalty if violates else float(checked.passed)
        return found | {
            "reward": reward,
            "result": checked.result,
            "metadata": checked.metadata,
            "unit_tests_time_taken": checked.seconds,
            "reasoning_format_violation_rate": float(violates),
        }

    async def check(self, code: str, unit_tests: Any) -> Verdict:
        """Run a program. Raises RowError, CodeRunnerError."""
        tests = await asyncio.to_thread(UnitTests.of, unit_tests)
        runner = code_runner(self.config.num_processes, allow_unsandboxed=self.config.allow_unsandboxed)
        return await check(runner, tests, code, self.config.unit_test_timeout_secs)

    def scores(self, record: dict[str, Any]) -> dict[str, float | bool]:
        return {"accuracy": record["reward"] > 0}


def breaks_reasoning_format(response: NeMoGymResponse) -> bool:
    """Whether the text has a think tag in it, or the reasoning more than one that opens or that closes."""
    if any(tag in all_text(response) for tag in _TAGS):
        return True
    items = [item for item in response.output if item.type == "reasoning"]
    reasoning = "".join(part.text for item in items for part in item.summary)
    return any(reasoning.count(tag) > 1 for tag in _TAGS)


def _global_failure(error: Exception) -> dict[str, Any]:
    return {
        "result": [GLOBAL_TIMEOUT] if isinstance(error, RowError) else None,
        "metadata": {"error_code": GLOBAL_TIMEOUT, "error_message": str(error)},
    }


VERIFIER_FIXTURE = server_fixture(
    CompCodingResourcesServer,
    CompCodingVerifyRequest,
    Path(__file__).parent / "tests" / "verifier_cases.jsonl",
    num_processes=1,
    unit_test_timeout_secs=10,
    debug=False,
)


if __name__ == "__main__":
    CompCodingResourcesServer.run_webserver()
