"""Versions the servers' own venvs must share with the process that starts them."""

from __future__ import annotations

from importlib import metadata

from nemo_gym.config.errors import ConfigError
from nemo_gym.config.keys import ALLOW_OPENAI_VERSION_SKEW_KEY_NAME
from nemo_gym.config.notices import warn

DISTRIBUTION = "nemo-gym"


def parent_version_pins(*, allow_openai_skew: bool = False) -> list[str]:
    """`ray[default]==…` and `openai==…` of this interpreter, as far as they are installed.

    openai is pinned only in a version Gym itself asks for. Another one raises ConfigError, or with
    `allow_openai_skew` is warned about and not pinned.
    """
    pins = []
    if (ray := _installed("ray")) is not None:
        pins.append(f"ray[default]=={ray}")
    openai = _installed("openai")
    if openai is not None and _is_wanted(openai, allow_skew=allow_openai_skew):
        pins.append(f"openai=={openai}")
    return pins


def _installed(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _is_wanted(openai: str, *, allow_skew: bool) -> bool:
    specifier = _own_requirement("openai")
    if specifier is None:
        return True
    from packaging.specifiers import SpecifierSet

    if SpecifierSet(specifier).contains(openai, prereleases=True):
        return True
    text = f"openai {openai} is installed, but Gym needs openai{specifier}"
    if not allow_skew:
        raise ConfigError(f"{text}: install that, or set {ALLOW_OPENAI_VERSION_SKEW_KEY_NAME}=true to go without.")
    warn(f"{text}: servers may get another version than this process.")
    return False


def _own_requirement(name: str) -> str | None:
    """The versions Gym's own metadata asks for; None when it has no metadata or doesn't say."""
    from packaging.requirements import Requirement

    try:
        lines = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return None
    wanted = [requirement for requirement in map(Requirement, lines) if requirement.name == name]
    return next((str(requirement.specifier) for requirement in wanted if requirement.marker is None), None)
