"""The fields of a row that belong to the task."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict

from nemo_gym.task_data import consumed_by


class TaskData(BaseModel):
    """A question of fact. The prompt itself is in `responses_create_params`."""

    model_config = ConfigDict(extra="allow")

    id: Annotated[str | int | None, consumed_by("provenance")] = None
    question: Annotated[str | None, consumed_by("verify")] = None
    expected_answer: Annotated[str | None, consumed_by("verify")] = None
