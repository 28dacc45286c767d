"""The fields of a row that belong to the task."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict

from nemo_gym.task_data import consumed_by


class TaskData(BaseModel):
    """A question about a long text. The prompt itself is in `responses_create_params`."""

    model_config = ConfigDict(extra="allow")

    outputs: Annotated[list[str], consumed_by("verify")]
    length: Annotated[int, consumed_by("metrics")]
    subset: Annotated[str, consumed_by("verify", "metrics")]
