"""The fields of a row that belong to the task."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from nemo_gym.task_data import consumed_by


class LineVerifier(BaseModel):
    """So many lines in which one of the patterns is found."""

    model_config = ConfigDict(extra="allow")

    type: Literal["regex", "inline_prose"]
    verify_regex: list[str] = []
    verify_min_matches: int = 1
    pattern_id: str | None = None


class MarkerVerifier(BaseModel):
    """All markers, and none that the patterns find besides."""

    model_config = ConfigDict(extra="allow")

    type: Literal["string_match"]
    expected_markers: list[str] = []
    patterns: list[str] = []


Verifier = Annotated[LineVerifier | MarkerVerifier, Field(discriminator="type")]


class TaskData(BaseModel):
    """A text to write in a given form."""

    model_config = ConfigDict(extra="allow")

    verifier: Annotated[Verifier, consumed_by("verify")]
