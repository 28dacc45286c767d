"""Responses for tests of verifiers, as models."""

from __future__ import annotations

from typing import Any

from nemo_gym.schema.response import NeMoGymResponse
from nemo_gym.testing import responses
from nemo_gym.testing.responses import call, message, reasoning

__all__ = ["call", "message", "reasoning", "response"]


def response(*output: dict[str, Any]) -> NeMoGymResponse:
    return NeMoGymResponse.model_validate(responses.response(*output))
