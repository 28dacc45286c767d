"""What a benchmark is told, as overrides on the command line of `gym`."""

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from nemo_gym.config.override_text import QUOTED, quoted, text_value
from nemo_gym.config.secrets import recursively_hide_secrets
from nemo_gym.orchestration.errors import SubmitConfigError

_KEY = re.compile(r"[A-Za-z_][\w-]*|\d+")


@dataclass
class Arguments:
    """Overrides in the order of their keys, and the variables that the secret ones among them are read from."""

    where: str
    secrets: dict[str, str] = field(default_factory=dict)

    def tokens(self, values: Mapping[str, Any]) -> list[str]:
        """`+a.b=value` for every leaf. Raises SubmitConfigError for a key that overrides can't name."""
        shown = copy.deepcopy(dict(values))
        recursively_hide_secrets(shown)
        return [f"+{key}={text}" for key, text in self._leaves(values, shown, ())]

    def _leaves(
        self, values: Mapping[str, Any], shown: Mapping[str, Any], path: tuple[str, ...]
    ) -> Iterator[tuple[str, str]]:
        """`shown` is the same with secrets masked: what differs there is not written down."""
        for key, value in values.items():
            below = (*path, self._checked(str(key), path))
            if isinstance(value, Mapping) and value:
                yield from self._leaves(value, shown[key], below)
            else:
                yield ".".join(below), self._text(value, shown[key], str(key))

    def _checked(self, key: str, path: tuple[str, ...]) -> str:
        if not _KEY.fullmatch(key):
            raise SubmitConfigError(
                f"{'.'.join((self.where, *path, key))}: the key {key!r} can't be given as an override; put it into a "
                "config file and name that in config_paths."
            )
        return key

    def _text(self, value: Any, shown: Any, key: str) -> str:
        if isinstance(value, Mapping):
            pairs = (
                f"{self._checked(str(name), (key,))}: {self._text(item, shown[name], str(name))}"
                for name, item in value.items()
            )
            return "{" + ", ".join(pairs) + "}"
        if isinstance(value, list | tuple):
            return "[" + ",".join(self._text(item, mask, key) for item, mask in zip(value, shown, strict=True)) + "]"
        if value is None or isinstance(value, bool):
            return "null" if value is None else str(value).lower()
        if shown != value:
            return "${oc.env:" + self._hidden(str(value)) + "}"
        return _literal(value) if isinstance(value, str) else str(value)

    def _hidden(self, value: str) -> str:
        name = f"GYM_ARG_{len(self.secrets) + 1}"
        self.secrets[name] = value
        return name


def _literal(text: str) -> str:
    """A text that stays this text, even one that looks like `null` or like quotes."""
    return quoted(text) if text in ("", "null") or QUOTED.fullmatch(text) else text_value(text)
