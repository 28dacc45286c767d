"""The model call that the running code works for; cheap to import, so that whoever captures nothing pays nothing."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nemo_gym.token_id_capture.sink import CaptureContext

active_call: ContextVar[CaptureContext | None] = ContextVar("nemo_gym_token_capture", default=None)
