"""The fields of a row that belong to the task."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field


def _consumed_by(*readers: str, **more: str) -> Any:
    return Field(json_schema_extra={"consumed_by": list(readers), **more})


class TaskData(BaseModel):
    """A programming problem's tests: `{inputs, outputs, fn_name?}`, or `{packed, fn_name?}` with the lists as base64 of
    zlib of JSON. The problem itself is in `responses_create_params`."""

    model_config = ConfigDict(extra="allow")

    unit_tests: Annotated[dict[str, Any], _consumed_by("verify", legacy_location="verifier_metadata")]
    difficulty: Annotated[str | None, _consumed_by("metrics", legacy_location="verifier_metadata")] = None
    hash_id: Annotated[str | None, _consumed_by("provenance")] = None
    dataset: Annotated[str | None, _consumed_by("provenance")] = None
    source: Annotated[str | None, _consumed_by("provenance")] = None
