"""The fields of a row that belong to the task."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict

from nemo_gym.task_data import consumed_by


class TaskData(BaseModel):
    """Which pieces come, on which board; what a row does not say is as in the server's `env_config`."""

    model_config = ConfigDict(extra="allow")

    seed: Annotated[int | None, consumed_by("verify")] = None
    level_id: Annotated[int | str | None, consumed_by("provenance")] = None
    dim_x: Annotated[int | None, consumed_by("verify")] = None
    dim_y: Annotated[int | None, consumed_by("verify")] = None
    box_type: Annotated[int | None, consumed_by("verify")] = None
    grid_lookup: Annotated[dict[int, str] | None, consumed_by("prompt")] = None
    action_lookup: Annotated[dict[int, str] | None, consumed_by("prompt")] = None
    dim_board: Annotated[Any, consumed_by("provenance")] = None
