"""The kinds of flags a command can have. Each knows how it is spelled and which override it stands for."""

import argparse
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from nemo_gym.cli.overrides import config_paths_override, list_value, text_value


@dataclass(frozen=True, kw_only=True)
class Flag(ABC):
    """One option of a command. `key` is the config key it sets, if it sets one."""

    names: tuple[str, ...]
    help: str
    key: str = ""
    metavar: str | None = None

    @property
    def dest(self) -> str:
        """The attribute that holds the parsed value: the long name, as an identifier."""
        return self.names[0].lstrip("-").replace("-", "_")

    @abstractmethod
    def register(self, parser: argparse._ActionsContainer) -> None:
        """Add the option to a parser."""

    def translate_to_hydra(self, args: argparse.Namespace) -> list[str]:
        """The overrides this flag stands for; none when it was not given.

        Raises UsageError when the value can't be meant.
        """
        value = getattr(args, self.dest, None)
        return [] if value is None or value is False else self.overrides(value)

    def overrides(self, value: Any) -> list[str]:
        """The overrides for a value that was given."""
        return []


@dataclass(frozen=True, kw_only=True)
class TextFlag(Flag):
    """A value that is always text, quoted wherever the grammar would read something else into it."""

    choices: tuple[str, ...] | None = None

    def register(self, parser: argparse._ActionsContainer) -> None:
        parser.add_argument(*self.names, help=self.help, metavar=self.metavar, choices=self.choices)

    def overrides(self, value: str) -> list[str]:
        return [f"+{self.key}={text_value(value)}"]


@dataclass(frozen=True, kw_only=True)
class LiteralFlag(Flag):
    """A value in the override grammar itself: a number, `null`, a list or a mapping."""

    def register(self, parser: argparse._ActionsContainer) -> None:
        parser.add_argument(*self.names, help=self.help, metavar=self.metavar)

    def overrides(self, value: str) -> list[str]:
        return [f"+{self.key}={value}"]


@dataclass(frozen=True, kw_only=True)
class UrlFlag(TextFlag):
    """An address, or a bracketed list of them."""

    def overrides(self, value: str) -> list[str]:
        is_list = value.startswith("[") and value.endswith("]")
        return [f"+{self.key}={value}"] if is_list else super().overrides(value)


@dataclass(frozen=True, kw_only=True)
class SecretFlag(TextFlag):
    """A secret, better named than shown: `env:NAME` takes it from that environment variable."""

    def overrides(self, value: str) -> list[str]:
        if value.startswith("env:"):
            return super().overrides("${oc.env:" + value.removeprefix("env:") + "}")
        return super().overrides(value)


@dataclass(frozen=True, kw_only=True)
class SwitchFlag(Flag):
    """On when given: sets `key` to `value`. Without a key it only steers the command itself."""

    value: str = "true"

    def register(self, parser: argparse._ActionsContainer) -> None:
        parser.add_argument(*self.names, help=self.help, action="store_true")

    def overrides(self, value: bool) -> list[str]:
        return [f"+{self.key}={self.value}"] if self.key else []


@dataclass(frozen=True, kw_only=True)
class NamesFlag(Flag):
    """A comma list of names, none of them empty."""

    def register(self, parser: argparse._ActionsContainer) -> None:
        parser.add_argument(*self.names, help=self.help, metavar=self.metavar)

    def overrides(self, value: str) -> list[str]:
        from nemo_gym.errors import UsageError

        items = [item.strip() for item in value.split(",")]
        if not all(items):
            raise UsageError(f"{self.names[0]} {value!r} holds an empty name: write them as A,B.")
        return [f"+{self.key}={list_value(items)}"]


@dataclass(frozen=True, kw_only=True)
class RangeFlag(Flag):
    """Two numbers, the lower first."""

    def register(self, parser: argparse._ActionsContainer) -> None:
        parser.add_argument(*self.names, help=self.help, metavar=("LOW", "HIGH"), nargs=2, type=float)

    def overrides(self, value: list[float]) -> list[str]:
        return [f"+{self.key}=[{value[0]},{value[1]}]"]


@dataclass(frozen=True, kw_only=True)
class WorkloadFlag(Flag):
    """The name of an environment or benchmark that is to be made; `key` says which of the two."""

    def register(self, parser: argparse._ActionsContainer) -> None:
        parser.add_argument(*self.names, help=self.help, metavar="NAME")

    def overrides(self, value: str) -> list[str]:
        return [f"+scaffold_kind={self.key}", f"+scaffold_name={text_value(value)}"]


@dataclass(frozen=True, kw_only=True)
class ConfigFlag(Flag):
    """Config files, by path, in order."""

    def register(self, parser: argparse._ActionsContainer) -> None:
        parser.add_argument(*self.names, help=self.help, metavar=self.metavar, action="append")

    def overrides(self, value: Iterable[str]) -> list[str]:
        return [config_paths_override(value)]


@dataclass(frozen=True, kw_only=True)
class SelectorFlag(Flag):
    """Config files, by the name of what they configure."""

    repeatable: bool = True

    def register(self, parser: argparse._ActionsContainer) -> None:
        parser.add_argument(
            *self.names, help=self.help, metavar="NAME[/FLAVOR]", action="append" if self.repeatable else "store"
        )

    def overrides(self, value: str | list[str]) -> list[str]:
        from nemo_gym.config.selectors import resolve_selector

        names = [value] if isinstance(value, str) else value
        return [config_paths_override(str(resolve_selector(self.names[0], name)) for name in names)]


@dataclass(frozen=True, kw_only=True)
class EntrypointFlag(Flag):
    """The folder of one resources server."""

    def register(self, parser: argparse._ActionsContainer) -> None:
        parser.add_argument(*self.names, help=self.help, metavar="NAME")

    def overrides(self, value: str) -> list[str]:
        return [f"+entrypoint={text_value(f'resources_servers/{value}')}"]


@dataclass(frozen=True, kw_only=True)
class SearchDirFlag(Flag):
    """Further folders to find components in, while the command runs."""

    def register(self, parser: argparse._ActionsContainer) -> None:
        parser.add_argument(*self.names, help=self.help, metavar="DIR", action="append")


@dataclass(frozen=True, kw_only=True)
class Words(Flag):
    """What a command names without a dash. It is declared so that help shows it; it may stand anywhere on the line.

    With a `limit` above 1 the parsed value is the list of all words.
    """

    limit: int = 1

    def refusal(self, word: str) -> str:
        """Why a word can't be meant; nothing where it can."""
        return ""

    def overrides(self, value: Any) -> list[str]:
        return [f"+{self.key}={text_value(value)}"] if self.key and isinstance(value, str) else []

    def register(self, parser: argparse._ActionsContainer) -> None:
        parser.add_argument(self.names[0], help=self.help, metavar=self.metavar, nargs="*")


def absolute_directories(folders: Iterable[str]) -> list[str]:
    """Folders as absolute paths, so that they mean the same in a server's own folder.

    Raises UsageError naming the first that is no folder.
    """
    from nemo_gym.errors import UsageError

    found = [os.path.abspath(os.path.expanduser(folder)) for folder in folders]  # noqa: PTH100, PTH111 - symlinks kept
    for folder in found:
        if not os.path.isdir(folder):  # noqa: PTH112
            raise UsageError(f"--search-dir {folder} is not a folder: name one that holds component folders.")
    return found
