"""The fields of a row that belong to the task."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict

from nemo_gym.task_data import consumed_by


class TaskData(BaseModel):
    """An entry of a data set of reasoning-gym. The prompt itself is in `responses_create_params`."""

    model_config = ConfigDict(extra="allow")

    question: Annotated[str, consumed_by("verify")]
    answer: Annotated[str | None, consumed_by("verify")]
    metadata: Annotated[dict[str, Any], consumed_by("verify")]
