"""Wordle by tool calls."""
