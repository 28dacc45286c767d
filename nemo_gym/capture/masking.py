"""Secrets of a config kept out of what is captured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

MASK = b"****"
_SHORTEST = 8


class SecretMask:
    """Masks the secret values of a config in a line of JSON, found by value wherever they stand.

    A value that is one word, a number or shorter than eight characters is left alone: it could be anybody's text, or
    be part of the JSON itself.
    """

    def __init__(self, config: Any) -> None:
        self._config = config

    @cached_property
    def _spellings(self) -> list[bytes]:
        from nemo_gym.config.secrets import secret_values

        values = secret_values(self._config) if isinstance(self._config, Mapping) else set()
        told = [value for value in values if len(value) >= _SHORTEST and not (value.isalpha() or value.isdigit())]
        return [json.dumps(value, ensure_ascii=False)[1:-1].encode() for value in sorted(told, key=len, reverse=True)]

    def __call__(self, line: bytes) -> bytes:
        for spelling in self._spellings:
            if spelling in line:
                line = line.replace(spelling, MASK)
        return line
