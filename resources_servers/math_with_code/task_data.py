"""The fields of a row that belong to the task."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict

from nemo_gym.task_data import consumed_by


class TaskData(BaseModel):
    """A problem with its answer. The prompt itself, and the tool, are in `responses_create_params`."""

    model_config = ConfigDict(extra="allow")

    expected_result: Annotated[str, consumed_by("verify")]
    expected_code_contains: Annotated[str, consumed_by("provenance")] = ""
    id: Annotated[int | str | None, consumed_by("provenance")] = None
