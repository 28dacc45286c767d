"""Megatron's chat completions: vLLM's shape, with what Gym adds to a request inside `offload_params`."""

from __future__ import annotations

from typing import Any

from nemo_gym.token_id_capture.adapters.vllm import REQUIRED_PREFIX_FIELD, VLLMCaptureAdapter

OFFLOAD_FIELD = "offload_params"


class MegatronCaptureAdapter(VLLMCaptureAdapter):
    """Reads tokens as vLLM's adapter does; asks for a prefix inside `offload_params`."""

    def enter_prefix(self, request_payload: dict[str, Any], prefix_ids: list[int]) -> dict[str, Any]:
        """A copy of the request whose prompt has to begin with these tokens."""
        offload = {**(request_payload.get(OFFLOAD_FIELD) or {}), REQUIRED_PREFIX_FIELD: list(prefix_ids)}
        return {**request_payload, OFFLOAD_FIELD: offload}
