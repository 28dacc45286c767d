"""Where components, configs and data are looked for, and where outputs go."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path

from nemo_gym.config.errors import ConfigError

ROOT_DIR = Path(os.path.abspath(__file__)).parent.parent  # noqa: PTH100 - absolute, symlinks kept
PARENT_DIR = ROOT_DIR.parent
IS_EDITABLE_INSTALL = (PARENT_DIR / "pyproject.toml").exists()
WORKING_DIR = PARENT_DIR if IS_EDITABLE_INSTALL else Path.cwd()
CACHE_DIR = WORKING_DIR / "cache"
RESULTS_DIR = WORKING_DIR / "results"

NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME = "NEMO_GYM_EXTRA_ROOTS"


def component_search_roots(*, sys_path: Iterable[str] | None = None) -> list[Path]:
    """The folders a relative path is looked for in, best first.

    `NEMO_GYM_EXTRA_ROOTS` (read now), then `sys_path` when given, then the current folder, then the install root. A
    folder counts once, by its resolved path; the last two stay last even when `sys_path` names them.
    """
    extra = [Path(entry) for entry in os.environ.get(NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME, "").split(os.pathsep) if entry]
    last = [Path.cwd(), PARENT_DIR]
    kept_for_last = {root.resolve() for root in last}
    woven = [path for path in map(Path, sys_path or ()) if path.resolve() not in kept_for_last]
    roots: dict[Path, Path] = {}
    for root in (*extra, *woven, *last):
        roots.setdefault(root.resolve(), root.absolute())
    return list(roots.values())


@contextmanager
def also_searched(*, first: Iterable[str | Path] = (), last: Iterable[str | Path] = ()) -> Iterator[None]:
    """Inside, find components in other folders too, in this process and those it starts.

    `first` come before all others, `last` after the others of `NEMO_GYM_EXTRA_ROOTS`.
    """
    before = os.environ.get(NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME)
    places = [*map(str, first), *([before] if before else []), *map(str, last)]
    os.environ[NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME] = os.pathsep.join(places)
    try:
        yield
    finally:
        if before is None:
            del os.environ[NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME]
        else:
            os.environ[NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME] = before


def resolve_under_roots(rel_path: str | Path, *, validator: Callable[[Path], bool] | None = None) -> Path:
    """The first `root / rel_path` that `validator` (default: exists) accepts; absolute paths come back unchanged.

    Nothing fits: the path under the best root, so that messages point at the user's place. For reads only.
    """
    accepts = Path.exists if validator is None else validator
    candidates = [root / rel_path for root in component_search_roots()]  # an absolute path swallows the root
    return next((candidate for candidate in candidates if accepts(candidate)), candidates[0])


def is_server_directory(path: Path) -> bool:
    """Whether a folder can be served: it says what it needs."""
    return (path / "requirements.txt").is_file() or (path / "pyproject.toml").is_file()


def server_directory(server_type: str, implementation: str) -> Path:
    """The folder of `<server_type>/<implementation>` under the first root that has it.

    Raises ConfigError naming the closest existing names and the places looked in.
    """
    relative = Path(server_type) / implementation
    if relative.is_absolute() or ".." in relative.parts:
        raise ConfigError(f"`{implementation}` is no name of a server's folder below {server_type}/.")
    candidates = [root / relative for root in component_search_roots()]
    for candidate in candidates:
        if is_server_directory(candidate):
            return candidate
    bare = next((candidate for candidate in candidates if candidate.is_dir()), None)
    if bare is not None:
        raise ConfigError(f"{bare} has neither requirements.txt nor pyproject.toml, so it can't be served: add one.")
    close = get_close_matches(implementation, _server_names(server_type), n=1)
    hint = f" Did you mean `{close[0]}`?" if close else ""
    looked_in = ", ".join(str(candidate.parent) for candidate in candidates)
    raise ConfigError(f"There is no server `{relative}`.{hint} Looked in: {looked_in}.")


def augment_sys_path() -> None:
    """Make components importable: extra roots first, then what is there, the current folder and install root last."""
    extra = [entry for entry in os.environ.get(NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME, "").split(os.pathsep) if entry]
    own = [str(Path(entry).absolute()) for entry in extra]
    last = [str(Path.cwd()), str(PARENT_DIR)]
    moved = {Path(entry).resolve() for entry in (*own, *last)}
    middle = [entry for entry in sys.path if Path(entry).resolve() not in moved]
    first = {Path(entry).resolve() for entry in own}
    tail = [entry for entry in last if Path(entry).resolve() not in first]
    sys.path[:] = list(dict.fromkeys([*own, *middle, *tail]))


def _server_names(server_type: str) -> list[str]:
    folders = [root / server_type for root in component_search_roots()]
    return sorted({child.name for folder in folders if folder.is_dir() for child in folder.iterdir() if child.is_dir()})
