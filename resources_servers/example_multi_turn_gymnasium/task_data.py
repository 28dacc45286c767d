"""The fields of a row that belong to the task."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict

from nemo_gym.task_data import consumed_by


class TaskData(BaseModel):
    """What the user says next, and what the last answer should hold."""

    model_config = ConfigDict(extra="allow")

    follow_ups: Annotated[list[str], consumed_by("prompt")]
    expected_answer: Annotated[str, consumed_by("verify")]
