"""Tokens that inference workers stage themselves: what travels, what it hashes to, and how it is put together again."""

from nemo_gym.token_id_capture.staging.terminal import TerminalSelection, select_terminal_call
from nemo_gym.token_id_capture.terminal import TerminalAttribution, resolve_terminal

__all__ = ["TerminalAttribution", "TerminalSelection", "resolve_terminal", "select_terminal_call"]
