"""The fields of a row that belong to the task."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict

from nemo_gym.task_data import consumed_by


class TaskData(BaseModel):
    """A prompt whose answers are compared with each other; it is in `responses_create_params`."""

    model_config = ConfigDict(extra="allow")

    principle: Annotated[str | None, consumed_by("verify")] = None
    prompt_id: Annotated[str | int | None, consumed_by("verify")] = None
