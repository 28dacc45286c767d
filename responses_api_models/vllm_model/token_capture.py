"""What training-token capture asks of an engine: the tokens a call has to begin with, or to stage them itself."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

from nemo_gym.token_id_capture.config import TokenIdCaptureConfig, token_id_capture_config
from nemo_gym.token_id_capture.current import active_call
from responses_api_models.vllm_model.errors import ConflictingCapture, UnprovenPrefix
from responses_api_models.vllm_model.settings import VLLMModelConfig

if TYPE_CHECKING:
    from nemo_gym.token_id_capture.external_capture import ExternalCaptureHandler

REQUIRED_PREFIX_FIELD = "required_prefix_token_ids"
_LOG_EVERY = 10

_logger = logging.getLogger("nemo_gym.vllm_model")


def external_handler(config: VLLMModelConfig, global_config_dict: Any) -> ExternalCaptureHandler | None:
    """The handler of the workers that stage tokens, None when none do. Raises ConflictingCapture."""
    capture = token_id_capture_config(global_config_dict)
    if not (capture.enabled and capture.external_staging):
        return None
    _check_compatible(config, capture)
    from nemo_gym.token_id_capture.external_capture import make_external_capture_handler

    return make_external_capture_handler(capture.external_staging_backend)


def _check_compatible(config: VLLMModelConfig, capture: TokenIdCaptureConfig) -> None:
    for key in ("return_token_id_information", "use_completions_api", "is_responses_native"):
        if getattr(config, key):
            raise ConflictingCapture(
                f"{config.name}: {key} is true, but with token_id_capture.external_staging the "
                f"{capture.external_staging_backend} keeps the tokens of chat completions: set it to false."
            )


class PrefixSupply:
    """Gives an engine the exact tokens of the call that a request continues, and sees to it that it used them."""

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts

    def enter(self, body: dict[str, Any]) -> dict[str, Any]:
        """The body with the prefix; as it is outside of a captured call, or when the parent isn't known."""
        context = active_call.get()
        if context is None:
            return body
        if not context.parent_tokens:
            self._counts["without_parent"] += 1
            return body
        context.prefix_requested = True
        return {**body, REQUIRED_PREFIX_FIELD: context.parent_tokens}

    def check(self, body: dict[str, Any], prompt_token_ids: list[int] | None) -> None:
        """Raises UnprovenPrefix when an answer's prompt doesn't begin with the prefix that its request asked for."""
        context = active_call.get()
        prefix = body.get(REQUIRED_PREFIX_FIELD)
        if context is None or not context.prefix_requested or not prefix:
            return
        if prompt_token_ids is None:
            raise UnprovenPrefix("The engine was given a prefix of tokens, but its answer has no prompt_token_ids.")
        if prompt_token_ids[: len(prefix)] != prefix:
            raise UnprovenPrefix(
                f"The engine was given a prefix of {len(prefix)} tokens, but the prompt it generated from doesn't "
                "begin with them."
            )
        context.prefix_supplied = True
        self._counts["supplied"] += 1
        if self._counts["supplied"] % _LOG_EVERY == 0:
            _logger.info("Prefixes supplied: %s", dict(self._counts))
