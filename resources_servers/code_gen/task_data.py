"""The fields of a row that belong to the task."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict

from nemo_gym.task_data import consumed_by


class TaskData(BaseModel):
    """A programming problem's tests: `{inputs, outputs, fn_name?}`, or `{packed, fn_name?}` with the lists as base64 of
    zlib of JSON. The problem itself is in `responses_create_params`."""

    model_config = ConfigDict(extra="allow")

    unit_tests: Annotated[dict[str, Any], consumed_by("verify", legacy_location="verifier_metadata")]
    difficulty: Annotated[str | None, consumed_by("metrics", legacy_location="verifier_metadata")] = None
    hash_id: Annotated[str | None, consumed_by("provenance")] = None
    dataset: Annotated[str | None, consumed_by("provenance")] = None
    source: Annotated[str | None, consumed_by("provenance")] = None
