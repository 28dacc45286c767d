"""The fields of a row that belong to the task."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict

from nemo_gym.task_data import consumed_by


class TaskData(BaseModel):
    """A question about companies. The prompt itself, with the tools, is in `responses_create_params`."""

    model_config = ConfigDict(extra="allow")

    question: Annotated[str, consumed_by("prompt", "verify")]
    expected_answer: Annotated[str, consumed_by("verify")]
