"""The fields of a row that belong to the task."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field


class TaskData(BaseModel):
    """What should be done in the office."""

    model_config = ConfigDict(extra="allow")

    ground_truth: Annotated[list[dict[str, Any]] | str, Field(json_schema_extra={"consumed_by": ["verify"]})]
    id: Annotated[int | None, Field(json_schema_extra={"consumed_by": ["provenance"]})] = None
    category: Annotated[str | None, Field(json_schema_extra={"consumed_by": ["metrics"]})] = None
    environment_name: Annotated[str | None, Field(json_schema_extra={"consumed_by": ["provenance"]})] = None
