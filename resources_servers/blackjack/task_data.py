"""The fields of a row that belong to the task."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict

from nemo_gym.task_data import consumed_by


class TaskData(BaseModel):
    """Which cards come; by chance without a seed."""

    model_config = ConfigDict(extra="allow")

    seed: Annotated[int | None, consumed_by("verify")] = None
