"""The fields of a row that belong to the task."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict

from nemo_gym.task_data import consumed_by


class TaskData(BaseModel):
    """A multiple choice question. The prompt itself is in `responses_create_params`."""

    model_config = ConfigDict(extra="allow")

    options: Annotated[list[dict[str, str | None]] | None, consumed_by("verify")] = None
    expected_answer: Annotated[str | None, consumed_by("verify", "metrics")] = None
    grading_mode: Annotated[
        Literal["strict_single_letter_boxed", "lenient_boxed", "lenient_answer_colon"], consumed_by("verify")
    ] = "strict_single_letter_boxed"
    template_metadata: Annotated[dict[str, Any] | None, consumed_by("verify")] = None
    uuid: Annotated[str | None, consumed_by("provenance")] = None
    metadata: Annotated[dict[str, Any] | None, consumed_by("provenance")] = None
