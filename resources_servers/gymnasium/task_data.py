"""The fields of a row that belong to the task: none, since each environment has its own."""

from pydantic import BaseModel, ConfigDict


class TaskData(BaseModel):
    model_config = ConfigDict(extra="allow")
