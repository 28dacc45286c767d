"""The fields of a row that belong to the task: there are none, the prompt says everything."""

from pydantic import BaseModel, ConfigDict


class TaskData(BaseModel):
    """Nothing but the request."""

    model_config = ConfigDict(extra="allow")
