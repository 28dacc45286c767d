"""The fields of a row that belong to the task."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict

from nemo_gym.task_data import consumed_by


class TaskData(BaseModel):
    """A question with a short answer. The prompt itself is in `responses_create_params`."""

    model_config = ConfigDict(extra="allow")

    expected_answer: Annotated[str, consumed_by("verify")]
    extraction_mode: Annotated[
        Literal["boxed", "final_answer", "last_line", "full_response"], consumed_by("verify")
    ] = "final_answer"
    case_sensitive: Annotated[bool, consumed_by("verify")] = False
    metadata: Annotated[dict[str, Any] | None, consumed_by("provenance")] = None
