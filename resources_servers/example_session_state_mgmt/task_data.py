"""The fields of a row that belong to the task."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict

from nemo_gym.task_data import consumed_by


class TaskData(BaseModel):
    """Where the counter begins, and where it should end."""

    model_config = ConfigDict(extra="allow")

    initial_count: Annotated[int, consumed_by("verify")]
    expected_count: Annotated[int, consumed_by("verify")]
