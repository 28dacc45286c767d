"""The fields of a row that belong to the task."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict

from nemo_gym.task_data import consumed_by


class TaskData(BaseModel):
    """A problem with its answer. The prompt itself is in `responses_create_params`."""

    model_config = ConfigDict(extra="allow")

    question: Annotated[str, consumed_by("verify", "prompt")]
    expected_answer: Annotated[str, consumed_by("verify")]
