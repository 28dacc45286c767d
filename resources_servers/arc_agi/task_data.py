"""The fields of a row that belong to the task."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict

from nemo_gym.task_data import consumed_by


class TaskData(BaseModel):
    """A puzzle: pairs of grids that show a rule, and a grid to apply it to."""

    model_config = ConfigDict(extra="allow")

    expected_output: Annotated[list[list[int]], consumed_by("verify")] = []
    train: Annotated[list[dict[str, Any]], consumed_by("prompt")] = []
    test_input: Annotated[list[list[int]], consumed_by("prompt")] = []
    task_id: Annotated[str | None, consumed_by("provenance")] = None
