"""What one entry of a server's `datasets` list may say."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BaseModel, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

DatasetType: TypeAlias = Literal["train", "validation", "example"]
DatasetLicense: TypeAlias = Literal[
    "Apache 2.0",
    "MIT",
    "Creative Commons Attribution 4.0 International",
    "Creative Commons Attribution-ShareAlike 4.0 International",
    "CC BY-SA 4.0",
    "CC BY-NC 3.0",
    "NVIDIA Internal Use Only, Do Not Distribute",
    "NVIDIA Evaluation Dataset License Agreement",
    "TBD",
    "GNU General Public License v3.0",
]


class JsonlDatasetGitlabIdentifer(BaseModel):
    """A JSONL file in a GitLab model registry."""

    dataset_name: str
    version: str
    artifact_fpath: str


class JsonlDatasetHuggingFaceIdentifer(BaseModel):
    """A data set on the Hugging Face hub, or one file of it."""

    repo_id: str
    artifact_fpath: str | None = None


class GitlabDatasetSource(JsonlDatasetGitlabIdentifer):
    """Where to download from: GitLab."""

    type: Literal["gitlab"] = "gitlab"


class HuggingFaceDatasetSource(JsonlDatasetHuggingFaceIdentifer):
    """Where to download from: the Hugging Face hub."""

    type: Literal["huggingface"] = "huggingface"


DatasetSource: TypeAlias = Annotated[GitlabDatasetSource | HuggingFaceDatasetSource, Field(discriminator="type")]


def _without_empty_preparation(dump: dict[str, Any]) -> dict[str, Any]:
    for field in ("prepare_script", "prepare_dependencies"):
        if not dump.get(field, True):
            del dump[field]
    return dump


class DatasetConfig(BaseModel):
    """Rows for training, validation or demonstration.

    `source` and the two older identifiers mean the same; whichever is given fills the other, so that readers of either
    find it. Both older ones together are a primary and a fallback and leave `source` empty.
    """

    name: str
    type: DatasetType
    jsonl_fpath: str
    prepare_script: Path | None = None
    prepare_dependencies: list[str] = Field(default_factory=list)
    taskset: str | None = Field(default=None, min_length=1)
    num_repeats: int = Field(default=1, ge=1)
    source: DatasetSource | None = None
    gitlab_identifier: JsonlDatasetGitlabIdentifer | None = None
    huggingface_identifier: JsonlDatasetHuggingFaceIdentifer | None = None
    license: DatasetLicense | None = None

    @model_validator(mode="after")
    def check_train_validation_sets(self) -> Self:
        if self.type in ("train", "validation") and self.license is None:
            raise ValueError(f"A license is required for {self.name}")
        return self

    @model_validator(mode="after")
    def normalize_dataset_source(self) -> Self:
        gitlab, hub = self.gitlab_identifier, self.huggingface_identifier
        if self.source is not None:
            if gitlab is not None or hub is not None:
                raise ValueError(f"{self.name}: give either source or the older identifiers, not both")
            self._mirror_source(self.source)
        elif gitlab is not None or hub is not None:
            warnings.warn(
                f"data set {self.name}: gitlab_identifier and huggingface_identifier are deprecated, use source",
                DeprecationWarning,
                stacklevel=2,
            )
            self._fill_source(gitlab, hub)
        return self

    def _mirror_source(self, source: GitlabDatasetSource | HuggingFaceDatasetSource) -> None:
        fields = source.model_dump(exclude={"type"})
        if isinstance(source, GitlabDatasetSource):
            self.gitlab_identifier = JsonlDatasetGitlabIdentifer(**fields)
        else:
            self.huggingface_identifier = JsonlDatasetHuggingFaceIdentifer(**fields)

    def _fill_source(
        self, gitlab: JsonlDatasetGitlabIdentifer | None, hub: JsonlDatasetHuggingFaceIdentifer | None
    ) -> None:
        if gitlab is not None and hub is None:
            self.source = GitlabDatasetSource(**gitlab.model_dump())
        elif hub is not None and gitlab is None:
            self.source = HuggingFaceDatasetSource(**hub.model_dump())

    @model_serializer(mode="wrap")
    def _omit_empty_preparation_fields(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _without_empty_preparation(handler(self))


class BenchmarkDatasetConfig(BaseModel):
    """The rows of a benchmark, written by its `prepare_script`; `agent` pins who answers them."""

    name: str
    type: Literal["benchmark"]
    jsonl_fpath: Path
    prepare_script: Path
    taskset: str | None = Field(default=None, min_length=1)
    prompt_config: Path | None = None
    num_repeats: int = Field(default=1, ge=1)
    prepare_dependencies: list[str] = Field(default_factory=list)
    agent: str | None = None

    @model_validator(mode="after")
    def check_pin(self) -> Self:
        if self.agent is not None and self.taskset is not None:
            raise ValueError(f"{self.name}: agent and taskset exclude each other")
        return self

    @model_serializer(mode="wrap")
    def _omit_empty_preparation_fields(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _without_empty_preparation(handler(self))


ServerDataset: TypeAlias = Annotated[DatasetConfig | BenchmarkDatasetConfig, Field(discriminator="type")]
