"""Prompt templates."""

from nemo_gym.cli._compat import moved_attr_getter
from nemo_gym.config.prompts import (
    PromptConfig,
    apply_prompt_to_row,
    fill_prompt,
    load_prompt_config,
    materialize_prompts,
    validate_prompt_compatibility,
)

__all__ = [
    "PromptConfig",
    "apply_prompt_to_row",
    "fill_prompt",
    "load_prompt_config",
    "materialize_prompts",
    "validate_prompt_compatibility",
]

__getattr__ = moved_attr_getter(__name__, {"materialize_prompts_cli": "nemo_gym.cli.dataset"})
