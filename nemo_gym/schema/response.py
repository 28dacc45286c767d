"""`POST /v1/responses`: the answer, and the form in which whole trajectories are stored."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, field_validator

from nemo_gym.schema.item_unions import NeMoGymResponseOutputItem
from nemo_gym.schema.items import Item, NeMoGymResponseOutputMessage
from nemo_gym.schema.tools import EchoedTool, EchoedToolChoice
from nemo_gym.schema.usage import NeMoGymResponseUsage
from nemo_gym.schema.wire import OBJECT, TEXT, TEXT_OR_OBJECT, OpenModel, WireModel, plain


class ResponseError(WireModel):
    """Why a response failed."""

    code: str
    message: str


class IncompleteDetails(WireModel):
    """Why a response stopped early: `max_output_tokens` or `content_filter`."""

    reason: str | None = None


class EchoedReasoning(WireModel):
    """The reasoning settings a response was made with."""

    effort: str | None = None
    generate_summary: str | None = None
    summary: str | None = None


class NeMoGymResponse(WireModel):
    """A Responses object. What it does not declare, at any depth of its output, is kept and dumped."""

    id: str
    created_at: float
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | list[Any] | None = None
    metadata: dict[str, str] | None = None
    model: str
    object: Literal["response"]
    output: list[NeMoGymResponseOutputItem]
    parallel_tool_calls: bool
    temperature: float | None = None
    tool_choice: Annotated[Annotated[str, TEXT] | Annotated[EchoedToolChoice, OBJECT], TEXT_OR_OBJECT]
    tools: list[EchoedTool]
    top_p: float | None = None
    background: bool | None = None
    completed_at: float | None = None
    conversation: OpenModel | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    moderation: OpenModel | None = None
    previous_response_id: str | None = None
    prompt: OpenModel | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    reasoning: EchoedReasoning | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    status: Literal["completed", "failed", "in_progress", "cancelled", "queued", "incomplete"] | None = None
    text: OpenModel | None = None
    top_logprobs: int | None = None
    truncation: str | None = None
    usage: NeMoGymResponseUsage | None = None
    user: str | None = None

    @field_validator("output", mode="before")
    @classmethod
    def _foreign_items_as_data(cls, output: Any) -> Any:
        """Items that are models of somebody else's (a vendor's SDK) are read like their dump."""
        if not isinstance(output, list | tuple):
            return output
        return [plain(item) if isinstance(item, BaseModel) and not isinstance(item, Item) else item for item in output]

    @field_validator("output", mode="after")
    @classmethod
    def _types_are_set(cls, output: list[Any]) -> list[Any]:
        """Marks `type` as set: an untyped output item can't be read back from an `exclude_unset` dump."""
        for item in output:
            item.model_fields_set.add("type")
            if isinstance(item, NeMoGymResponseOutputMessage):
                for part in item.content:
                    part.model_fields_set.add("type")
        return output

    @property
    def output_text(self) -> str:
        """The text of all output messages, joined without a separator."""
        messages = (item for item in self.output if isinstance(item, NeMoGymResponseOutputMessage))
        return "".join(part.text for message in messages for part in message.content if part.type == "output_text")
