"""Kinds of values that a submit config holds: names, variables, durations, arguments."""

import re
import shlex
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias, cast

from pydantic import AfterValidator, BeforeValidator, Field

NAME = re.compile(r"[A-Za-z0-9._-]+")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

EnvKind: TypeAlias = Literal["lit", "host", "runtime"]
_KINDS = ("lit", "host", "runtime")
_DURATION = re.compile(r"(?:(?P<days>\d+)-(?P<of_day>\d+(?::\d+){0,2})|(?P<plain>\d+(?::\d+){0,2}))")
_ODD_IN_PATHS = re.compile(r"[\s'\"`$\\,:%*?\[\]{}();&|<>#!]")


@dataclass(frozen=True)
class EnvValue:
    """A variable's value: `lit` text, the value a `host` variable has where it is submitted, or of `runtime`."""

    kind: EnvKind
    text: str

    @classmethod
    def of(cls, text: str) -> "EnvValue":
        """Read `lit:VALUE`, `host:VAR` or `runtime:VAR`. Raises ValueError for anything else."""
        kind, colon, rest = text.partition(":")
        if not colon or kind not in _KINDS:
            raise ValueError(
                "has none of the prefixes lit: (the value itself), host: (a variable here) and runtime: (a variable of "
                "the job)"
            )
        if kind != "lit" and not VARIABLE.fullmatch(rest):
            raise ValueError(f"{kind}: is followed by the name of a variable, which {rest!r} isn't")
        return cls(cast(EnvKind, kind), rest)


def duration_seconds(text: str) -> int:
    """Seconds of MM, MM:SS, HH:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS. Raises ValueError for anything else."""
    matched = _DURATION.fullmatch(text)
    if matched is None:
        raise ValueError(f"{text!r} is no duration: write MM, MM:SS, HH:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS")
    if matched["days"]:
        hours, minutes, seconds = _padded(matched["of_day"].split(":"))
        return ((int(matched["days"]) * 24 + hours) * 60 + minutes) * 60 + seconds
    parts = matched["plain"].split(":")
    hours, minutes, seconds = _padded(parts) if len(parts) == 3 else _padded(["0", *parts])
    return (hours * 60 + minutes) * 60 + seconds


def _padded(parts: list[str]) -> tuple[int, int, int]:
    first, second, third = (int(part) for part in [*parts, "0", "0"][:3])
    return first, second, third


def identifier(name: str) -> str:
    """A name as a part of a shell variable's name: `gpu-pool` is GPU_POOL."""
    return re.sub(r"[^A-Za-z0-9]", "_", name).upper()


def _checked_env(text: str) -> str:
    EnvValue.of(text)
    return text


def _checked_name(name: str) -> str:
    if not NAME.fullmatch(name) or name.strip(".") == "":
        raise ValueError(f"{name!r} is no name: use letters, digits, '.', '_' and '-'")
    return name


def _checked_variable(name: str) -> str:
    if not VARIABLE.fullmatch(name):
        raise ValueError(f"{name!r} is no name of an environment variable")
    return name


def _quoted_duration(value: Any) -> Any:
    if isinstance(value, int):
        raise ValueError('put it in quotes ("04:00:00", or "240" minutes): YAML reads 10:00:00 without them as 36000')
    return value


def _checked_duration(text: str) -> str:
    if duration_seconds(text) == 0:
        raise ValueError("is no time at all")
    return text


def _one_line(text: str) -> str:
    if "\n" in text or not text.strip():
        raise ValueError("must be one line that isn't empty")
    return text


def _one_word(text: str) -> str:
    if not re.fullmatch(r"[^\s'\"`$\\;&|<>]+", text):
        raise ValueError("must be one word without quotes")
    return text


def _shell_words(text: str) -> str:
    try:
        shlex.split(text)
    except ValueError as error:
        raise ValueError(f"can't be read as arguments ({str(error).lower()})") from None
    if "\n" in text.strip():
        raise ValueError("must be one line")
    return text.strip()


def _words(value: Any) -> Any:
    return shlex.split(_shell_words(value)) if isinstance(value, str) else value


def _checked_mount(text: str) -> str:
    parts = _one_line(text).split(":")
    if len(parts) not in (2, 3) or not all(parts) or not parts[1].startswith("/"):
        raise ValueError(f"{text!r} is no mount: write SOURCE:/TARGET or SOURCE:/TARGET:ro")
    if any(_ODD_IN_PATHS.search(part) for part in parts):
        raise ValueError(f"{text!r} has a blank, a quote or a comma in it, which a mount can't")
    return text


def checked_path(text: str) -> str:
    """A path that scripts, mounts and overrides can hold. Raises ValueError for another."""
    odd = _ODD_IN_PATHS.search(text)
    if odd or not text:
        raise ValueError(f"{text!r} has {odd[0]!r} in it: choose a folder without" if odd else "must not be empty")
    return text


EnvText: TypeAlias = Annotated[str, AfterValidator(_checked_env)]
Name: TypeAlias = Annotated[str, AfterValidator(_checked_name)]
Variable: TypeAlias = Annotated[str, AfterValidator(_checked_variable)]
Duration: TypeAlias = Annotated[str, BeforeValidator(_quoted_duration), AfterValidator(_checked_duration)]
Line: TypeAlias = Annotated[str, AfterValidator(_one_line)]
Word: TypeAlias = Annotated[str, AfterValidator(_one_word)]
ShellWords: TypeAlias = Annotated[str, AfterValidator(_shell_words)]
"""Arguments as a shell reads them; variables in them are left to it."""
Words: TypeAlias = Annotated[list[str], BeforeValidator(_words)]
Mount: TypeAlias = Annotated[str, AfterValidator(_checked_mount)]
FolderPath: TypeAlias = Annotated[str, AfterValidator(checked_path)]
Port: TypeAlias = Annotated[int, Field(ge=1, le=65535)]
Env: TypeAlias = dict[Variable, EnvText]
