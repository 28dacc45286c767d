"""The command line of an own vLLM server."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any


def serve_command(python: str, model: str, arguments: Mapping[str, Any]) -> list[str]:
    """`vllm serve` with keyword arguments as flags: true and false as switches, null left out, objects as JSON."""
    flags = [text for name, value in arguments.items() for text in _flag(name, value)]
    return [python, "-m", "vllm.entrypoints.cli.main", "serve", model, *flags]


def _flag(name: str, value: Any) -> Iterator[str]:
    flag = name.replace("_", "-")
    if value is None:
        return
    if isinstance(value, bool):
        yield f"--{flag}" if value else f"--no-{flag}"
        return
    yield f"--{flag}"
    if isinstance(value, Mapping):
        yield json.dumps(value)
    elif isinstance(value, list | tuple):
        yield from map(str, value)
    else:
        yield str(value)
