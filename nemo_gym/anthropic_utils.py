"""The Messages types components import."""

from nemo_gym.schema.anthropic_messages import (
    NeMoGymAnthropicMessage,
    NeMoGymAnthropicMessageCreateParamsNonStreaming,
)

__all__ = ["NeMoGymAnthropicMessage", "NeMoGymAnthropicMessageCreateParamsNonStreaming"]
