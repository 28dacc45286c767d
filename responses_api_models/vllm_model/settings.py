"""What can be set of a vLLM policy model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig

ReasoningField = Literal["both", "reasoning", "reasoning_content"]
REASONING_FIELD_ENV = "NEMO_GYM_REASONING_FIELD"


class VLLMModelConfig(BaseResponsesAPIModelConfig):
    """The engines (`base_url`, one or several), the form they want requests in, and what is read from their answers.

    With `return_token_id_information` answers carry the exact token ids and log-probabilities of the call.
    `extra_body` lies under every request, `sampling_overrides` is forced onto every body sent. README.md has all keys.
    """

    NEEDS_ADDRESS: ClassVar[bool] = True
    """Whether the address has to be known before the server starts."""

    base_url: list[str]
    api_key: str
    model: str
    return_token_id_information: bool
    request_prompt_and_generation_token_ids: bool = False

    uses_reasoning_parser: bool
    uses_interleaved_reasoning: bool = True
    reasoning_field: ReasoningField = Field(
        default_factory=lambda: os.environ.get(REASONING_FIELD_ENV) or "both",
        validate_default=True,
    )
    preserve_reasoning_in_assistant_content: bool = False
    sequential_reasoning_allowed: bool = True
    replace_developer_role_with_system: bool = False

    is_responses_native: bool = False
    chat_template_kwargs: dict[str, Any] | None = None
    forward_request_chat_template_kwargs: bool = False
    continue_final_assistant_message: bool = False
    sampling_overrides: dict[str, Any] | None = None
    extra_body: dict[str, Any] | None = None
    default_headers: dict[str, str] = Field(default_factory=dict)
    propagate_context_overflow_errors: bool = False
    forward_session_id_as_conversation_id: bool = False
    audio_root: Path | None = None

    endpoint_file: Path | None = None
    endpoint_check_interval_s: float = Field(default=10.0, ge=0)
    endpoint_stale_grace_s: float = Field(default=300.0, ge=0)
    endpoint_connection_retries: int = Field(default=8, ge=1)

    use_completions_api: bool = False
    render_chat_template: bool = False
    tokenizer: str | None = None
    trust_remote_code: bool = True

    supply_prefix_token_ids: bool = False

    @field_validator("base_url", mode="before")
    @classmethod
    def _as_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        if self.NEEDS_ADDRESS and not self.base_url and self.endpoint_file is None:
            raise ValueError("base_url is empty: give the engine's address, which ends in /v1")
        if self.supply_prefix_token_ids:
            self._check_prefix_supply()
        if self.use_completions_api and self.is_responses_native:
            raise ValueError("use_completions_api and is_responses_native exclude each other: keep one of them")
        if self.render_chat_template and not self.use_completions_api:
            raise ValueError("render_chat_template is for use_completions_api: set that too, or neither")
        return self

    def _check_prefix_supply(self) -> None:
        if not self.return_token_id_information:
            raise ValueError("supply_prefix_token_ids needs return_token_id_information: true, to see what was used")
        if self.use_completions_api or self.is_responses_native:
            raise ValueError(
                "supply_prefix_token_ids is for chat completions: unset use_completions_api, is_responses_native"
            )
