"""Which model answers when none was named."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from nemo_gym.config.errors import ConfigError, raise_problems
from nemo_gym.config.interpolations import is_empty
from nemo_gym.config.keys import POLICY_BASE_URL_KEY_NAME, POLICY_MODEL_KEY_NAME, RESPONSES_API_MODELS
from nemo_gym.config.layers import Sources, gather
from nemo_gym.config.notices import quietly
from nemo_gym.config.overrides import parse_overrides

EMBEDDED_MODEL_CONFIG = "responses_api_models/llama_cpp_model/configs/llama_cpp_model.yaml"
_POLICY_MODEL = re.compile(rf"(?<!\w){POLICY_MODEL_KEY_NAME}(?!\w)")


@dataclass(frozen=True)
class DefaultModel:
    """The model config to compose beneath all others (`fallback_config_paths`), and the line that says so.

    Neither when there is nothing to add.
    """

    config_path: str | None = None
    notice: str | None = None


def default_model(overrides: Sequence[str], *, dotenv_path: Path | None = None) -> DefaultModel:
    """The model for a run whose command line these overrides are.

    A `policy_model` that the config defines wins. Where servers call one that nothing defines, it is the embedded
    model, unless `policy_base_url` is set: then the kind of server behind it must be named, which is a ConfigError.
    """
    with quietly():  # composing reads the same files again
        layers = gather(Sources(overrides=parse_overrides(overrides), dotenv_path=dotenv_path))
    raise_problems(layers.problems)
    config = layers.merged()
    if _defines_policy_model(config) or not _calls_policy_model(config):
        return DefaultModel()
    if not is_empty(OmegaConf.create(config), POLICY_BASE_URL_KEY_NAME):
        raise ConfigError(
            f"{POLICY_BASE_URL_KEY_NAME} is set, but nothing says what kind of server answers there: pass "
            f"--model-type, for example --model-type openai_model or --model-type vllm_model."
        )
    return DefaultModel(
        EMBEDDED_MODEL_CONFIG,
        "No model was named: using the small embedded one (llama_cpp_model), which is for demonstration. "
        "Name another with --model-type.",
    )


def _defines_policy_model(config: Mapping[str, Any]) -> bool:
    entry = config.get(POLICY_MODEL_KEY_NAME)
    if not isinstance(entry, Mapping):
        return entry is not None
    models = entry.get(RESPONSES_API_MODELS)
    defined = isinstance(models, Mapping) and any("entrypoint" in block for block in models.values() if block)
    return defined or any(key in entry for key in ("_inherit_from", "_copy"))


def _calls_policy_model(value: object) -> bool:
    """Whether anything names the policy model, as a reference or inside a `${…}`."""
    if isinstance(value, str):
        return _POLICY_MODEL.search(value) is not None
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return any(map(_calls_policy_model, items))
