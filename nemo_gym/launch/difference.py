"""What a component needs that the base doesn't have, as uv sees it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from nemo_gym.launch.errors import VenvError
from nemo_gym.launch.interpreter import DISTRIBUTION, Base
from nemo_gym.launch.requirements import Requirements, is_option, requirement_name
from nemo_gym.launch.uv import Uv

_CHANGE = re.compile(r"^ ([+~-]) (\S.*)$")
_PINNED = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(?:==(?P<version>\S+)| @ (?P<url>\S+))")


@dataclass(frozen=True)
class Difference:
    """`packages` are exact requirement lines to install without their dependencies, `names` all that gets installed."""

    packages: tuple[str, ...]
    names: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.packages)


def difference(requirements: Requirements, pins: Sequence[str], base: Base, uv: Uv) -> Difference:
    """Resolve against the base by a dry run. nemo-gym is never part of the answer.

    Raises VenvError when the requirements contradict each other, our own or the pins.
    """
    arguments = ["pip", "install", "--dry-run", "--python", str(base.executable), "-r", "-"]
    if requirements.overrides is not None:
        arguments += ["--override", str(requirements.overrides)]
    lines = [*([requirements.self_line] if requirements.self_line else []), *requirements.lines, *pins]
    result = uv.run_offline_first(arguments, directory=requirements.directory, stdin="\n".join(lines) + "\n")
    if result.code != 0:
        named = ", ".join(requirement_name(line) for line in requirements.lines if not is_option(line))
        raise VenvError(
            f"The packages of {requirements.directory} ({named or 'its own'}) can't be resolved "
            f"against this installation: {result.reason} "
            f"Change its requirements or give it an overrides.txt; offline, the packages must be in uv's cache."
        )
    return parse_difference(result.output, requirements)


def parse_difference(output: str, requirements: Requirements) -> Difference:
    """Read uv's list of changes. Raises VenvError for a form we don't know."""
    packages: list[str] = []
    names: list[str] = []
    for line in output.splitlines():
        change = _CHANGE.match(line)
        if change is None or change.group(1) == "-":
            continue
        pinned = _PINNED.fullmatch(change.group(2).strip())
        if pinned is None:
            raise VenvError(
                f"uv wrote a line that Gym doesn't understand: {line.strip()!r}; use another version of uv."
            )
        name = _normal(pinned.group("name"))
        if name == DISTRIBUTION:
            continue
        names.append(name)
        url = pinned.group("url")
        if url is None:
            packages.append(f"{pinned.group('name')}=={pinned.group('version')}")
        elif not url.startswith("file:"):
            packages.append(f"{pinned.group('name')} @ {url}")
    return Difference((*packages, *(requirements.local_lines if names else ())), tuple(names))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
