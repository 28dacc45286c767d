"""The fields of a row that belong to the task."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict

from nemo_gym.task_data import consumed_by


class TaskData(BaseModel):
    """The calls that should be made. Question and tools are in `responses_create_params`."""

    model_config = ConfigDict(extra="allow")

    expected_answers: Annotated[list[dict[str, Any]], consumed_by("verify")] = []
