"""The fields of a row that belong to the task."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict

from nemo_gym.task_data import consumed_by


class TaskData(BaseModel):
    """The call that is right: `name`, and the `arguments` it must have."""

    model_config = ConfigDict(extra="allow")

    expected_call: Annotated[dict[str, Any], consumed_by("verify")] = {}
