"""`gym env init`: make the files of something new, and see that they pass their checks."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from nemo_gym.cli.given import given
from nemo_gym.config.errors import ConfigError
from nemo_gym.errors import UsageError

if TYPE_CHECKING:
    from nemo_gym.environment.scaffold_files import ScaffoldResult

_WORKLOAD_OPTIONS = ("profile", "reuse_verifier", "reward_range", "higher_is_better")
_KEYS = ("entrypoint", "scaffold_kind", "scaffold_name", *_WORKLOAD_OPTIONS)


def init() -> None:
    """Make what the overrides in `sys.argv` ask for."""
    values = given(_KEYS)
    is_workload = "scaffold_kind" in values and "scaffold_name" in values
    if is_workload and "entrypoint" in values:
        raise UsageError(
            "a server (entrypoint) and an environment or benchmark exclude each other: make one at a time."
        )
    if is_workload:
        _init_workload(values)
        return
    options = [key for key in _WORKLOAD_OPTIONS if key in values]
    if options:
        raise UsageError(f"{', '.join(options)}: this is for --environment and --benchmark.")
    if "entrypoint" not in values:
        raise UsageError("missing entrypoint: name what to make by --resources-server, --environment or --benchmark.")
    _init_server(Path(values["entrypoint"]))


def _init_server(directory: Path) -> None:
    from nemo_gym.environment.errors import ScaffoldConflictError
    from nemo_gym.environment.scaffold import scaffold_resources_server

    existed = directory.exists()
    try:
        result = scaffold_resources_server(directory)
    except ScaffoldConflictError:
        if not existed:
            raise
        print(f"{directory} exists already and is different: nothing was changed.")  # with 0, as scripts count on
        return
    tell(result)


def _init_workload(values: Mapping[str, str]) -> None:
    from nemo_gym.environment.scaffold import scaffold_environment
    from nemo_gym.environment.validation import validate_environment

    result = scaffold_environment(
        kind=values["scaffold_kind"],
        name=values["scaffold_name"],
        profile=values.get("profile", "custom-gym-verifier"),
        reuse_verifier=values.get("reuse_verifier"),
        reward_range=_range(values),
        higher_is_better=_is_higher_better(values),
    )
    tell(result)
    validate_environment(result.asset_dir / "manifest.yaml")


def _range(values: Mapping[str, str]) -> tuple[float, float] | None:
    if "reward_range" not in values:
        return None
    try:
        low, high = map(float, json.loads(values["reward_range"]))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"reward_range is {values['reward_range']}: it must be two numbers, [LOW,HIGH].") from error
    return low, high


def _is_higher_better(values: Mapping[str, str]) -> bool | None:
    value = values.get("higher_is_better")
    return None if value is None else value.lower() == "true"


def tell(result: "ScaffoldResult") -> None:
    if not result.created:
        print(f"✓ {result.asset_dir} is already up to date.")
        return
    print(f"✓ Created {result.asset_dir}")
    for path in result.created:
        print(f"  {_shown(path)}")


def _shown(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
