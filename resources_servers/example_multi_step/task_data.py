"""The fields of a row that belong to the task."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict

from nemo_gym.task_data import consumed_by


class TaskData(BaseModel):
    """A term's synonyms and their values, in order; the minefield is the term itself."""

    model_config = ConfigDict(extra="allow")

    id: Annotated[int, consumed_by("provenance")]
    expected_synonym_values: Annotated[list[int], consumed_by("verify")]
    expected_synonyms: Annotated[list[str], consumed_by("provenance")]
    minefield_label: Annotated[str, consumed_by("metrics")]
    minefield_label_value: Annotated[int, consumed_by("metrics")]
