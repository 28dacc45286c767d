"""The fields of a row that belong to the task."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict

from nemo_gym.task_data import consumed_by


class TaskData(BaseModel):  # type: ignore[no-redef]
    """Instructions and their arguments, in pairs. They may also stand in `verifier_metadata`."""

    model_config = ConfigDict(extra="allow")

    id: Annotated[int, consumed_by("verify")]
    instruction_id_list: Annotated[list[str], consumed_by("verify")]
    prompt: Annotated[str, consumed_by("verify")]
    kwargs: Annotated[list[dict[str, Any] | None], consumed_by("verify")]
    grading_mode: Annotated[str, consumed_by("verify")] = "binary"
