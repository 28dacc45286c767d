"""The fields of a row that belong to the task."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from nemo_gym.task_data import consumed_by


class TaskData(BaseModel):
    """The word to find, and how many guesses there are."""

    model_config = ConfigDict(extra="allow")

    custom_target: Annotated[str, consumed_by("verify")]
    word_length: Annotated[int, Field(ge=1), consumed_by("verify")] = 5
    max_turns: Annotated[int, Field(ge=1), consumed_by("verify")] = 6
