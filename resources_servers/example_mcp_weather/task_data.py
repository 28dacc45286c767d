"""The field of a row that belongs to the task."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class TaskData(BaseModel):
    """A question about the weather in a city."""

    model_config = ConfigDict(extra="allow")

    expected_city: Annotated[
        str, Field(json_schema_extra={"consumed_by": ["verify"], "legacy_location": "verifier_metadata"})
    ] = "Paris"
