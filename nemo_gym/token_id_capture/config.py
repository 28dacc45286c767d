"""The `token_id_capture` block of a config, and the stores it names."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, cast

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, field_validator, model_validator

from nemo_gym.config.keys import MODEL_CALL_CAPTURE_DIR_KEY_NAME, TOKEN_ID_CAPTURE_BLOCK
from nemo_gym.token_id_capture.errors import TokenCaptureConfigError

if TYPE_CHECKING:
    from nemo_gym.token_id_capture.protocols import LineageResolver, TokenSink

ExternalStagingBackend: TypeAlias = Literal["vllm_worker", "megatron_worker"]

CONTROL_AUTH_TOKEN_ENV = "NEMO_GYM_TOKEN_CAPTURE_CONTROL_TOKEN"
_TARGET = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_SINK_METHODS = ("put", "mark_incomplete", "close")
_RESOLVER_METHODS = ("resolve", "is_process_shared", "close")


class NonGeneratingRequest(BaseModel):
    """A route that runs no model, by method and exact path."""

    method: str
    path: str

    @field_validator("method")
    @classmethod
    def require_letters(cls, method: str) -> str:
        if not re.fullmatch(r"[A-Za-z]+", method):
            raise ValueError("must be the name of an HTTP method")
        return method.upper()

    @field_validator("path")
    @classmethod
    def require_exact_path(cls, path: str) -> str:
        if not path.startswith("/") or set(path) & set("?#*{}"):
            raise ValueError("must be an exact path that starts with / and has none of ?#*{}")
        return path


class TokenIdCaptureConfig(BaseModel):
    """Whether and how the tokens of model calls are captured. docs list what each key does."""

    model_config = ConfigDict(extra="forbid")

    enabled: bool = False
    all_agents: bool = False
    dir: Path | None = None
    sink: str | None = None
    sink_kwargs: dict[str, Any] = Field(default_factory=dict)
    lineage_store: str | None = None
    lineage_store_kwargs: dict[str, Any] = Field(default_factory=dict)
    rebuild_response: bool = True
    allow_unresolved_continuations: bool = False
    delta_records: bool = False
    max_mask_fraction: float | None = Field(default=None, ge=0, le=1)
    mask_fraction_min_samples: int = Field(default=50, ge=1)
    external_staging: bool = False
    external_staging_backend: ExternalStagingBackend = "vllm_worker"
    control_auth_token_env: str = Field(default=CONTROL_AUTH_TOKEN_ENV, min_length=1)

    _fallback_dir: Path | None = PrivateAttr(default=None)

    @field_validator("dir")
    @classmethod
    def _require_absolute(cls, directory: Path | None) -> Path | None:
        if directory is not None and not directory.is_absolute():
            raise ValueError(f"{directory} must be an absolute path that every server can write to")
        return directory

    @field_validator("sink", "lineage_store")
    @classmethod
    def _require_target(cls, target: str | None) -> str | None:
        if target is not None and not _TARGET.fullmatch(target):
            raise ValueError(f"{target!r} must read package.module:Class")
        return target

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        if self.external_staging and not self.enabled:
            raise ValueError("external_staging needs enabled: true")
        if self.external_staging and self.rebuild_response:
            raise ValueError("external_staging needs rebuild_response: false, since its tokens aren't Gym's")
        if self.enabled and self.sink and not (self.lineage_store or self.allow_unresolved_continuations):
            raise ValueError(
                "a custom sink needs a lineage_store that can see what it keeps; set one, or "
                "allow_unresolved_continuations: true to accept rollouts of several calls that can't be trained on"
            )
        return self

    def resolved_dir(self) -> Path | None:
        """The folder of the file store: `dir`, else the folder of the model call capture."""
        return self.dir or self._fallback_dir

    def require_dir(self) -> Path:
        """The folder of the file store. Raises TokenCaptureConfigError when there is none."""
        directory = self.resolved_dir()
        if directory is None:
            raise TokenCaptureConfigError(
                f"{TOKEN_ID_CAPTURE_BLOCK}.dir is not set, nor is {MODEL_CALL_CAPTURE_DIR_KEY_NAME}: give it an "
                "absolute path that every server can write to, or name a sink."
            )
        return directory

    def build_sink(self) -> TokenSink | None:
        """A new sink of the configured class, None when none is. Raises TokenCaptureConfigError."""
        if self.sink is None:
            return None
        return cast("TokenSink", _build("sink", self.sink, self.sink_kwargs, _SINK_METHODS))

    def build_lineage_store(self) -> LineageResolver | None:
        """A new lineage store of the configured class, None when none is. Raises TokenCaptureConfigError."""
        if self.lineage_store is None:
            return None
        store = _build("lineage_store", self.lineage_store, self.lineage_store_kwargs, _RESOLVER_METHODS)
        return cast("LineageResolver", store)


def token_id_capture_config(global_config_dict: Any) -> TokenIdCaptureConfig:
    """The block of a global config; all defaults for what is no config. Raises TokenCaptureConfigError."""
    config = global_config_dict if isinstance(global_config_dict, Mapping) else {}
    block = _as_plain(config.get(TOKEN_ID_CAPTURE_BLOCK) or {})
    try:
        parsed = TokenIdCaptureConfig.model_validate(block)
    except ValidationError as error:
        raise TokenCaptureConfigError("; ".join(_sentences(error))) from error
    fallback = config.get(MODEL_CALL_CAPTURE_DIR_KEY_NAME)
    if isinstance(fallback, str | Path) and Path(fallback).is_absolute():
        parsed._fallback_dir = Path(fallback)
    return parsed


def token_id_capture_enabled_for_agent(global_config_dict: Any, agent: Any) -> bool:
    """Whether the tokens of an agent's model calls are captured.

    `agent` is its config (a mapping or an object with `token_id_capture`), or its instance name.
    """
    config = token_id_capture_config(global_config_dict)
    if not config.enabled:
        return False
    return config.all_agents or _wants_capture(global_config_dict, agent)


def _wants_capture(global_config_dict: Any, agent: Any) -> bool:
    if isinstance(agent, str):
        implementations = (global_config_dict.get(agent) or {}).get("responses_api_agents") or {}
        return any(_wants_capture(global_config_dict, block) for block in implementations.values())
    if isinstance(agent, Mapping):
        return bool(agent.get("token_id_capture"))
    return bool(getattr(agent, "token_id_capture", False))


def _as_plain(block: Any) -> Any:
    from omegaconf import DictConfig, OmegaConf

    return OmegaConf.to_container(block, resolve=True) if isinstance(block, DictConfig) else block


def _sentences(error: ValidationError) -> Iterable[str]:
    for problem in error.errors():
        place = ".".join([TOKEN_ID_CAPTURE_BLOCK, *map(str, problem["loc"])])
        yield f"{place}: {problem['msg'].removeprefix('Value error, ')}"


def _build(key: str, target: str, kwargs: Mapping[str, Any], methods: Iterable[str]) -> Any:
    place = f"{TOKEN_ID_CAPTURE_BLOCK}.{key}"
    module_name, _, class_name = target.partition(":")
    try:
        made = getattr(importlib.import_module(module_name), class_name)(**kwargs)
    except Exception as error:
        raise TokenCaptureConfigError(f"{place}: {target} can't be built ({error!r}).") from error
    if missing := [name for name in methods if not callable(getattr(made, name, None))]:
        raise TokenCaptureConfigError(f"{place}: {target} lacks {', '.join(missing)}.")
    return made
