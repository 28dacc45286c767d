"""The fields of a row that belong to the task."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict

from nemo_gym.task_data import consumed_by


class TaskData(BaseModel):
    """A question with the answer it should get. The prompt itself is in `responses_create_params`."""

    model_config = ConfigDict(extra="allow")

    expected_answer: Annotated[str | None, consumed_by("verify")] = None
    metadata: Annotated[dict[str, Any] | None, consumed_by("verify", "provenance")] = None
    template_metadata: Annotated[dict[str, Any] | None, consumed_by("verify")] = None
    uuid: Annotated[str | int | None, consumed_by("provenance")] = None
    options: Annotated[list[dict[str, Any]] | None, consumed_by("provenance")] = None
