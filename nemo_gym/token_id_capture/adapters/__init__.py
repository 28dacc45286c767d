"""How inference engines carry tokens in their requests and answers."""

from nemo_gym.token_id_capture.adapters.megatron import MegatronCaptureAdapter
from nemo_gym.token_id_capture.adapters.vllm import VLLMCaptureAdapter

__all__ = ["MegatronCaptureAdapter", "VLLMCaptureAdapter"]
