"""What commands take from the global config: one model per command, and their common base."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from inspect import cleandoc
from typing import Literal, Self, TypeAlias

from pydantic import BaseModel, Field, model_validator

from nemo_gym.config.dataset_entries import JsonlDatasetGitlabIdentifer


class BaseNeMoGymCLIConfig(BaseModel):
    """Base of every command's model. A `help` or `h` key among the values prints the model's fields and ends with 0."""

    @model_validator(mode="before")
    @classmethod
    def show_help_when_asked(cls, values: object) -> object:
        if isinstance(values, Mapping) and any(values.get(key) not in (None, False) for key in ("h", "help")):
            cls.print_help()
            sys.exit(0)
        return values

    @classmethod
    def print_help(cls) -> None:
        """Print what the command is for and each field: name, type, description, default."""
        print(cleandoc(cls.__doc__ or cls.__name__), "", *cls._field_lines(), sep="\n")

    @classmethod
    def _field_lines(cls) -> list[str]:
        lines = []
        for name, field in cls.model_fields.items():
            kind = getattr(field.annotation, "__name__", None) if isinstance(field.annotation, type) else None
            default = (
                "[required]" if field.is_required() else f"[default: {field.get_default(call_default_factory=True)}]"
            )
            lines.append(
                "  ".join(filter(None, [f"+{name}", kind or str(field.annotation), field.description, default]))
            )
        return lines


class UploadRolloutsConfigMixin(BaseModel):
    """Whether rollouts go to the configured experiment trackers."""

    upload_rollouts: bool = Field(default=True, description="Send rollouts to the configured trackers.")

    @model_validator(mode="before")
    @classmethod
    def accept_older_name(cls, values: object) -> object:
        if not isinstance(values, Mapping) or "upload_rollouts_to_wandb" not in values:
            return values
        warnings.warn("upload_rollouts_to_wandb is now called upload_rollouts", DeprecationWarning, stacklevel=2)
        renamed = dict(values)
        older = renamed.pop("upload_rollouts_to_wandb")
        renamed.setdefault("upload_rollouts", older)
        return renamed


class WANDBConfig(BaseModel):
    """Where Weights & Biases is told about a run."""

    wandb_project: str | None = None
    wandb_name: str | None = None
    wandb_api_key: str | None = None


class MLFlowConfig(BaseModel):
    """Where MLflow is told about a run."""

    mlflow_tracking_uri: str | None = None
    mlflow_tracking_token: str | None = None
    mlflow_experiment_name: str | None = None
    mlflow_run_name: str | None = None


class UploadJsonlDatasetGitlabConfig(BaseNeMoGymCLIConfig):
    """Upload a local JSONL file to a GitLab model registry."""

    dataset_name: str = Field(description="Name of the data set.")
    version: str = Field(description="Version of the data set, x.y.z.")
    input_jsonl_fpath: str = Field(description="The file to upload.")


class DownloadJsonlDatasetGitlabConfig(JsonlDatasetGitlabIdentifer, BaseNeMoGymCLIConfig):
    """Download a JSONL file from a GitLab model registry."""

    output_fpath: str = Field(description="Where to write the file.")


class DeleteJsonlDatasetGitlabConfig(BaseNeMoGymCLIConfig):
    """Delete a data set from a GitLab model registry."""

    dataset_name: str = Field(description="Name of the data set.")


HuggingFaceSplit: TypeAlias = Literal["train", "validation", "test"]


class BaseUploadJsonlDatasetHuggingFaceConfig(BaseNeMoGymCLIConfig):
    """Upload a local JSONL file to the Hugging Face hub."""

    hf_token: str = Field(description="Access token.")
    hf_organization: str = Field(description="Organization that owns the data set.")
    hf_collection_name: str = Field(description="Collection the data set is added to.")
    hf_collection_slug: str = Field(description="Last part of the collection's address.")
    dataset_name: str | None = Field(default=None, description="Name of the data set; the server's name when absent.")
    input_jsonl_fpath: str = Field(description="The file to upload.")
    resource_config_path: str = Field(description="Config file of the resources server the rows belong to.")
    hf_dataset_prefix: str = Field(default="Nemotron-RL", description="First part of the repository's name.")
    split: HuggingFaceSplit = Field(default="train", description="Split the file becomes.")
    create_pr: bool = Field(default=False, description="Propose the change instead of making it.")
    revision: str | None = Field(default=None, description="Branch to write to.")
    commit_message: str | None = Field(default=None, description="Commit message.")
    commit_description: str | None = Field(default=None, description="Commit description.")


class UploadJsonlDatasetHuggingFaceConfig(BaseUploadJsonlDatasetHuggingFaceConfig):
    """Upload a local JSONL file to the Hugging Face hub."""

    delete_from_gitlab: bool = Field(default=False, description="Delete the same data set from GitLab afterwards.")


class UploadJsonlDatasetHuggingFaceMigrateConfig(BaseUploadJsonlDatasetHuggingFaceConfig):
    """Move a data set from GitLab to the Hugging Face hub."""

    @model_validator(mode="before")
    @classmethod
    def forbid_delete_from_gitlab(cls, values: object) -> object:
        if isinstance(values, Mapping) and "delete_from_gitlab" in values:
            raise ValueError("delete_from_gitlab can't be set here: a migration always offers to delete")
        return values


class DownloadJsonlDatasetHuggingFaceConfig(BaseNeMoGymCLIConfig):
    """Download a data set, or one file of it, from the Hugging Face hub."""

    repo_id: str = Field(description="Repository of the data set, owner/name.")
    artifact_fpath: str | None = Field(default=None, description="One file of the repository.")
    output_dirpath: str | None = Field(default=None, description="Folder for all splits.")
    output_fpath: str | None = Field(default=None, description="File for one split or artifact.")
    hf_token: str | None = Field(default=None, description="Access token.")
    split: HuggingFaceSplit | None = Field(default=None, description="The split to download.")

    @model_validator(mode="after")
    def check_what_and_where(self) -> Self:
        if bool(self.output_dirpath) == bool(self.output_fpath):
            raise ValueError("give exactly one of output_dirpath and output_fpath")
        if self.artifact_fpath and self.split:
            raise ValueError("artifact_fpath and split exclude each other")
        if self.output_fpath and not (self.artifact_fpath or self.split):
            raise ValueError("output_fpath needs split or artifact_fpath")
        return self
