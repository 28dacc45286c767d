"""The fields of a row that belong to the task."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict

from nemo_gym.task_data import consumed_by


class TaskData(BaseModel):
    """A question whose answer is a text. The prompt itself is in `responses_create_params`."""

    model_config = ConfigDict(extra="allow")

    expected_answer: Annotated[str, consumed_by("verify")]
    question: Annotated[str | None, consumed_by("provenance")] = None
    dataset: Annotated[str | None, consumed_by("provenance")] = None
    source: Annotated[str | None, consumed_by("provenance")] = None
    hashid: Annotated[str | None, consumed_by("provenance")] = None
    context_length: Annotated[str | None, consumed_by("provenance")] = None
