"""The fields of a row that belong to the task."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict

from nemo_gym.task_data import consumed_by


class ExpectedEvent(BaseModel):
    """An event: `duration` in minutes, `constraint` as in `after 10:30am`, and the times of day it must lie between."""

    model_config = ConfigDict(extra="allow")

    event_id: int | str
    duration: int
    constraint: str | None
    min_time: str
    max_time: str


class TaskData(BaseModel):
    """The calendar after the last message, its events by id. The conversation is in `responses_create_params`."""

    model_config = ConfigDict(extra="allow")

    exp_cal_state: Annotated[dict[str, ExpectedEvent | None], consumed_by("verify")]
