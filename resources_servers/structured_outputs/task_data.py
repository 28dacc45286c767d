"""The fields of a row that belong to the task."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict

from nemo_gym.task_data import consumed_by


class TaskData(BaseModel):
    """The JSON Schema, as a text, that the answer must fit. The prompt is in `responses_create_params`."""

    model_config = ConfigDict(extra="allow")

    schema_str: Annotated[str, consumed_by("verify")]
    schema_type: Annotated[Literal["json", "yaml", "xml", "toml", "csv"], consumed_by("verify", "metrics")] = "json"
    response_mode: Annotated[Literal["text", "tool_call"], consumed_by("verify", "metrics")] = "text"
    tool_name: Annotated[str | None, consumed_by("verify")] = None
    tool_payload_key: Annotated[str | None, consumed_by("verify")] = None
    problem_type: Annotated[str | None, consumed_by("metrics")] = None
    schema_repr: Annotated[str | None, consumed_by("metrics")] = None
    source_format: Annotated[str | None, consumed_by("provenance")] = None
    num_turns: Annotated[int | None, consumed_by("provenance")] = None
    source_record_id: Annotated[str | int | None, consumed_by("provenance")] = None
    tool_schema_mode: Annotated[str | None, consumed_by("metrics")] = None
    tool_choice: Annotated[str | dict[str, Any] | None, consumed_by("metrics")] = None
    parallel_tool_calls: Annotated[bool | None, consumed_by("metrics")] = None
    source_schema_type: Annotated[str | None, consumed_by("provenance")] = None
    num_tools: Annotated[int | None, consumed_by("metrics")] = None
    num_distractors: Annotated[int | None, consumed_by("provenance")] = None
    has_distractors: Annotated[bool | None, consumed_by("metrics")] = None
    instruction_layout: Annotated[str | None, consumed_by("metrics")] = None
    instruction_detail_level: Annotated[str | None, consumed_by("metrics")] = None
    system_instruction_style: Annotated[str | None, consumed_by("metrics")] = None
    tool_name_style: Annotated[str | None, consumed_by("metrics")] = None
    distractor_style: Annotated[str | None, consumed_by("metrics")] = None
    tool_union_mode: Annotated[str | None, consumed_by("metrics")] = None
