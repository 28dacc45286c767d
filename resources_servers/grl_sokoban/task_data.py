"""The fields of a row that belong to the task."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict

from nemo_gym.task_data import consumed_by


class TaskData(BaseModel):
    """Which level; what a row does not say is as in the server's `env_config`."""

    model_config = ConfigDict(extra="allow")

    seed: Annotated[int | None, consumed_by("verify")] = None
    level_id: Annotated[int | str | None, consumed_by("provenance")] = None
    dim_room: Annotated[tuple[int, int] | None, consumed_by("verify")] = None
    num_boxes: Annotated[int | None, consumed_by("verify")] = None
    max_steps: Annotated[int | None, consumed_by("verify")] = None
    search_depth: Annotated[int | None, consumed_by("verify")] = None
    grid_lookup: Annotated[dict[int, str] | None, consumed_by("prompt")] = None
    action_lookup: Annotated[dict[int, str] | None, consumed_by("prompt")] = None
    render_mode: Annotated[str | None, consumed_by("prompt")] = None
