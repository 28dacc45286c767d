"""What preparing data sets can be told."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from pydantic import Field, model_validator

from nemo_gym.config.command_models import BaseNeMoGymCLIConfig

Mode: TypeAlias = Literal["train_preparation", "example_validation"]
TaskDataValidation: TypeAlias = Literal["off", "warn", "error", "auto"]

TYPES_OF_MODE: dict[str, tuple[str, ...]] = {
    "train_preparation": ("train", "validation", "benchmark"),
    "example_validation": ("example",),
}


class TrainDataProcessorConfig(BaseNeMoGymCLIConfig):
    """Collect, check and measure the data sets a config declares."""

    output_dirpath: str = Field(description="Folder for the collated rows and their metrics.")
    mode: Mode = Field(description="Which data sets: those for runs, or the shipped examples.")
    should_download: bool = Field(default=False, description="Download data sets that are not there.")
    data_source: Literal["gitlab", "huggingface"] = Field(
        default="huggingface", description="Where to download data sets that name two places."
    )
    overwrite_metrics_conflicts: bool = Field(
        default=False, description="Replace metrics files that no longer fit the rows."
    )
    task_data_validation: TaskDataValidation = Field(
        default="auto", description="What rows that don't fit their server's schema mean; auto: error for examples."
    )

    @model_validator(mode="before")
    @classmethod
    def _take_own_fields(cls, values: object) -> object:
        from omegaconf import DictConfig

        if not isinstance(values, DictConfig):
            return values
        taken: dict[str, Any] = {name: values[name] for name in (*cls.model_fields, "h", "help") if name in values}
        return taken

    @property
    def in_scope_dataset_types(self) -> tuple[str, ...]:
        return TYPES_OF_MODE[self.mode]

    @property
    def effective_task_data_validation(self) -> Literal["off", "warn", "error"]:
        if self.task_data_validation != "auto":
            return self.task_data_validation
        return "error" if self.mode == "example_validation" else "warn"
