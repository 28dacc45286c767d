"""The fields of a row that belong to the task."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict

from nemo_gym.task_data import consumed_by


class TaskData(BaseModel):
    """What should be done in the office."""

    model_config = ConfigDict(extra="allow")

    ground_truth: Annotated[list[dict[str, Any]] | str, consumed_by("verify")]
    id: Annotated[int | None, consumed_by("provenance")] = None
    category: Annotated[str | None, consumed_by("metrics")] = None
    environment_name: Annotated[str | None, consumed_by("provenance")] = None
