"""Structured answers: the reward is 1 when a text, or the arguments of a call, fit the JSON Schema of the row."""

from functools import partial
from typing import Any, ClassVar, Literal

from pydantic import PrivateAttr

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.openai_utils import NeMoGymResponseFunctionToolCall
from nemo_gym.verifiers.blame import verdict_without_end
from nemo_gym.verifiers.extraction import fenced_blocks
from nemo_gym.verifiers.metrics import flat, mean_by
from nemo_gym.verifiers.response_text import all_text, function_calls
from nemo_gym.verifiers.verdicts import unmeasured, verdict
from nemo_gym.verifiers.worker_pool import WorkerError, WorkerPool
from resources_servers.structured_outputs.checking import (
    MESSAGE_LENGTH,
    ErrorType,
    Problem,
    check_arguments,
    check_text,
)
from resources_servers.structured_outputs.documents import SIMPLEST, SchemaType

__all__ = ["SchemaType"]

SECONDS = 10.0
DESCRIPTORS = {
    "schema_repr": "repr_",
    "response_mode": "response_mode_",
    "tool_schema_mode": "tool_schema_mode_",
    "tool_choice": "tool_choice_",
    "parallel_tool_calls": "parallel_tool_calls_",
    "num_tools": "num_tools_",
    "has_distractors": "has_distractors_",
    "instruction_layout": "instruction_layout_",
    "instruction_detail_level": "instruction_detail_level_",
    "system_instruction_style": "system_instruction_style_",
    "tool_name_style": "tool_name_style_",
    "distractor_style": "distractor_style_",
    "tool_union_mode": "tool_union_mode_",
}


class StructuredOutputsResourcesServerConfig(BaseResourcesServerConfig):
    """`xml_coerce_types`: texts in XML count as the numbers, booleans and lists their schema asks for.

    `accept_fenced`: a text that is one fenced block counts as what is in the block.
    """

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    xml_coerce_types: bool = True
    accept_fenced: bool = False


class StructuredOutputsRunRequest(BaseRunRequest):
    schema_str: str
    schema_type: SchemaType = SchemaType.JSON
    response_mode: Literal["text", "tool_call"] = "text"
    tool_name: str | None = None
    tool_payload_key: str | None = None

    problem_type: str | None = None
    schema_repr: str | None = None
    source_format: str | None = None
    num_turns: int | None = None
    source_record_id: str | int | None = None
    tool_schema_mode: str | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    source_schema_type: str | None = None
    num_tools: int | None = None
    num_distractors: int | None = None
    has_distractors: bool | None = None
    instruction_layout: str | None = None
    instruction_detail_level: str | None = None
    system_instruction_style: str | None = None
    tool_name_style: str | None = None
    distractor_style: str | None = None
    tool_union_mode: str | None = None


class StructuredOutputsVerifyRequest(StructuredOutputsRunRequest, BaseVerifyRequest):
    pass


class StructuredOutputsVerifyResponse(StructuredOutputsVerifyRequest, BaseVerifyResponse):
    """`error_type` is null for an answer that fits."""

    error_type: ErrorType | None = None
    error_message: str | None = None


class StructuredOutputsResourcesServer(SimpleResourcesServer):
    config: StructuredOutputsResourcesServerConfig

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True

    _pool: WorkerPool = PrivateAttr(default_factory=lambda: WorkerPool(memory_bytes=2 << 30))

    async def verify(  # type: ignore[override]
        self, body: StructuredOutputsVerifyRequest
    ) -> StructuredOutputsVerifyResponse:
        try:
            problem = await self.problem_of(body)
        except WorkerError as error:
            fields = await verdict_without_end(error, partial(self._checked, body, simplest_for(body)))
            problem = Problem("validation_error", str(error)[:MESSAGE_LENGTH])
        else:
            if problem is None:
                return verdict(StructuredOutputsVerifyResponse, body, reward=1.0)
            is_rows, message = problem.is_rows, problem.error_message
            fields = unmeasured(f"schema_str can't be used: {message}") if is_rows else {"reward": 0.0}
        own = {"error_type": problem.error_type, "error_message": problem.error_message, **fields}
        return verdict(StructuredOutputsVerifyResponse, body, own)

    async def problem_of(self, body: StructuredOutputsVerifyRequest) -> Problem | None:
        """What is wrong with the response, if anything. Raises WorkerError when that can't be told."""
        if body.response_mode == "tool_call":
            call = only_call(body)
            return call if isinstance(call, Problem) else await self._checked(body, call.arguments)
        text = all_text(body.response)
        if not text.strip():
            return Problem("empty_response")
        return await self._checked(body, unfenced(text) if self.config.accept_fenced else text)

    async def _checked(self, body: StructuredOutputsVerifyRequest, text: str) -> Problem | None:
        """What is wrong with a text or the arguments of a call. Raises WorkerError."""
        run = self._pool.run
        if body.response_mode == "tool_call":
            return await run(check_arguments, text, body.schema_str, body.tool_payload_key, timeout=SECONDS)
        coerce = self.config.xml_coerce_types
        return await run(check_text, text, body.schema_str, body.schema_type, coerce_xml_types=coerce, timeout=SECONDS)

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        """The mean reward of every kind of schema, problem, prompt and tool there is."""
        records = flat(tasks)
        prefixes = {"schema_type": "", "problem_type": "", **DESCRIPTORS}
        return {
            f"mean/reward_{prefix}{value}": mean
            for field, prefix in prefixes.items()
            for value, mean in mean_by(records, field).items()
        }


def only_call(body: StructuredOutputsVerifyRequest) -> NeMoGymResponseFunctionToolCall | Problem:
    """The one call of a response, by the right name."""
    if body.response.error is not None:
        return Problem("api_error", str(body.response.error.message)[:200])
    calls = function_calls(body.response)
    if len(calls) != 1:
        return Problem("multiple_tool_calls" if calls else "missing_tool_call", f"{len(calls)} calls instead of one")
    if body.tool_name and calls[0].name != body.tool_name:
        return Problem("wrong_tool_name", f"{calls[0].name!r} instead of {body.tool_name!r}"[:200])
    return calls[0]


def simplest_for(body: StructuredOutputsVerifyRequest) -> str:
    return SIMPLEST[SchemaType.JSON if body.response_mode == "tool_call" else body.schema_type]


def unfenced(text: str) -> str:
    """What the block holds where the text is one fenced block, else the text."""
    bare = text.strip()
    blocks = fenced_blocks(bare) if bare.startswith("```") and bare.endswith("```") else []
    return blocks[0] if len(blocks) == 1 else text


if __name__ == "__main__":
    StructuredOutputsResourcesServer.run_webserver()
