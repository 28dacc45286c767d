"""Whether model calls are captured, and where to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, model_validator

from nemo_gym.capture.masking import SecretMask
from nemo_gym.capture.store import CaptureStore
from nemo_gym.config.keys import MODEL_CALL_CAPTURE_DIR_KEY_NAME, OBSERVABILITY_ENABLED_KEY_NAME


class ModelCallCaptureConfig(BaseModel):
    """Whether model calls are recorded, and the absolute folder the records go to."""

    observability_enabled: bool = False
    model_call_capture_dir: Path | None = None

    @model_validator(mode="after")
    def validate_capture_dir(self) -> Self:
        directory = self.model_call_capture_dir
        if self.observability_enabled and (directory is None or not directory.is_absolute()):
            raise ValueError(
                "observability_enabled needs model_call_capture_dir, an absolute path that every server can write to"
            )
        return self


def make_capture_store(config: ModelCallCaptureConfig, global_config_dict: Any = None) -> CaptureStore | None:
    """The store that a config asks for, None when nothing is to be recorded; it masks the global config's secrets."""
    directory = config.model_call_capture_dir
    if not config.observability_enabled or directory is None:
        return None
    return CaptureStore(directory, mask=SecretMask(global_config_dict))


def observability_enabled_from_config(global_config_dict: Any) -> bool:
    """Whether a global config asks for model calls to be recorded; False for what is no config."""
    return isinstance(global_config_dict, Mapping) and bool(global_config_dict.get(OBSERVABILITY_ENABLED_KEY_NAME))


def model_call_capture_dirs_from_config(global_config_dict: Any) -> list[Path]:
    """The folders in which the model servers of a config leave their captures; none when they capture nothing."""
    if not observability_enabled_from_config(global_config_dict):
        return []
    directory = global_config_dict.get(MODEL_CALL_CAPTURE_DIR_KEY_NAME)
    return [Path(directory)] if directory else []
