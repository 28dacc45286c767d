"""The venv a server runs in: found, adopted or built, but never half of one.

A venv is built beside its place, stamped when complete and renamed into place under a lock. An unstamped one is
somebody else's: it is taken as it is when it can import what the server imports.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from nemo_gym.config.roots import PARENT_DIR, WORKING_DIR
from nemo_gym.launch.difference import Difference, difference
from nemo_gym.launch.errors import VenvError
from nemo_gym.launch.import_probe import why_unusable
from nemo_gym.launch.interpreter import Base, this_installation
from nemo_gym.launch.overlay import Stamp, link_base, provided_modules, read_stamp, write_bare_venv
from nemo_gym.launch.requirements import Requirements, read_requirements, requirement_name
from nemo_gym.launch.sources import compat_imports
from nemo_gym.launch.uv import Uv, can_write_below

VENV_NAME = ".venv"
LOCK_SUFFIX = ".setup.lock"

Report = Callable[[str], None]


@dataclass(frozen=True)
class VenvSettings:
    """What a config says about venvs. `root` is None where they live in the components' own folders."""

    root: Path | None = None
    skip_if_present: bool = False
    pins: tuple[str, ...] = ()
    uv: Uv = field(default_factory=Uv)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> VenvSettings:
        lock_timeout = config.get("uv_lock_timeout_seconds")
        return cls(
            root=_venv_root(config.get("uv_venv_dir")),
            skip_if_present=bool(config.get("skip_venv_if_present")),
            pins=tuple(map(str, config.get("head_server_deps") or ())),
            uv=Uv(
                cache_dir=config.get("uv_cache_dir"),
                lock_timeout=None if lock_timeout is None else str(lock_timeout),
                verbose=bool(config.get("pip_install_verbose")),
            ),
        )


@dataclass(frozen=True)
class Venv:
    """A venv that can be used. `ours` venvs are overlays of the running installation; `base` is that itself."""

    path: Path
    kind: Literal["ours", "foreign", "base"]
    python: Path
    site_packages: Path
    provides: frozenset[str] = frozenset()

    @property
    def binaries(self) -> Path:
        return self.python.parent


def venv_path(directory: Path, root: Path | None) -> Path:
    """`<root>/<type>/<implementation>/.venv`, or `.venv` in the component's own folder."""
    directory = Path(os.path.abspath(directory))  # noqa: PTH100 - symlinks are part of the name
    return directory / VENV_NAME if root is None else root.joinpath(*directory.parts[-2:], VENV_NAME)


def ensure_venv(
    directory: Path,
    settings: VenvSettings,
    *,
    entrypoints: Sequence[str] = ("app.py",),
    for_tests: bool = False,
    report: Report = print,
) -> Venv:
    """The venv of a component, built when there is none that will do.

    Raises VenvError, in one sentence, when it can't be had.
    """
    return _Ensured(directory, settings, tuple(entrypoints), for_tests, report, this_installation()).venv()


@dataclass(frozen=True)
class _Ensured:
    directory: Path
    settings: VenvSettings
    entrypoints: tuple[str, ...]
    for_tests: bool
    report: Report
    base: Base

    @property
    def path(self) -> Path:
        return venv_path(self.directory, self.settings.root)

    @property
    def label(self) -> str:
        return "/".join(self.directory.parts[-2:])

    def venv(self) -> Venv:
        found = self._trusted() or self._present(_keep_quiet)
        if found is not None:
            return found
        requirements = self._requirements()
        if not can_write_below(self.path.parent):
            return self._without_venv(requirements)
        with _lock(self.path, self.report):
            return self._present(self.report) or self._build(requirements)

    def _trusted(self) -> Venv | None:
        """With `skip_venv_if_present`, a finished venv of ours is taken without a look at what it should hold."""
        stamp = read_stamp(self.path)
        if self.settings.skip_if_present and stamp is not None and not stamp.adopted and _is_complete(self.path):
            return self._ours()
        return None

    def _present(self, report: Report) -> Venv | None:
        if not _is_complete(self.path):
            return None
        stamp = read_stamp(self.path)
        if stamp is None or stamp.adopted:
            return self._adopt(stamp, report)
        fits = stamp.digest == self._digest(self._requirements(for_tests=False))
        return self._ours() if fits and (stamp.with_tests or not self.for_tests) else None

    def _adopt(self, stamp: Stamp | None, report: Report) -> Venv | None:
        digest = hashlib.sha256(b"".join(_content(self.directory / name) for name in self.entrypoints)).hexdigest()
        if stamp is not None and stamp.digest == digest:
            return self._foreign()
        problem = why_unusable(self.path / "bin/python", self.directory, self.entrypoints)
        if problem is not None:
            if not can_write_below(self.path.parent):
                raise VenvError(f"The venv {self.path} can't run {self.label}: {problem}. Rebuild or remove it.")
            report(f"({self.label}) The venv {self.path} is not used: {problem}. Building it anew.")
            return None
        with contextlib.suppress(OSError):
            Stamp(digest, [], adopted=True).write(self.path)
        return self._foreign()

    def _requirements(self, *, for_tests: bool | None = None) -> Requirements:
        wanted = self.for_tests if for_tests is None else for_tests
        requirements = read_requirements(self.directory, for_tests=wanted)
        named = set(map(requirement_name, requirements.lines))
        absent = [name for name in compat_imports(self.directory) if name not in named and not _is_importable(name)]
        if not absent:
            return requirements
        return Requirements(**{**requirements.__dict__, "extras": requirements.extras | {"compat"}})

    def _digest(self, requirements: Requirements) -> str:
        text = "\n".join([requirements.text(), *self.settings.pins, self.base.fingerprint])
        return hashlib.sha256(text.encode()).hexdigest()

    def _without_venv(self, requirements: Requirements) -> Venv:
        """Nothing may be written: fine as long as nothing has to be."""
        if self._difference(requirements):
            raise VenvError(
                f"{self.label} needs packages of its own, and {self.path} can't be written: "
                f"set +uv_venv_dir to a folder of your own."
            )
        library = self.base.site_directories[0] if self.base.site_directories else self.base.prefix
        return Venv(self.base.prefix, "base", self.base.executable, library)

    def _difference(self, requirements: Requirements) -> Difference:
        """What has to be installed; uv is only asked when the manifest names anything."""
        if not requirements.asks_for_something:
            return Difference((), ())
        return difference(requirements, self.settings.pins, self.base, self.settings.uv)

    def _build(self, requirements: Requirements) -> Venv:
        started = time.monotonic()
        _remove_leftovers(self.path)
        building = self.path.with_name(f"{self.path.name}.building-{os.getpid()}-{secrets.token_hex(4)}")
        try:
            change = self._difference(requirements)
            if change:
                self.report(f"({self.label}) Installing {len(change.names)} packages into {self.path} …")
                self._install(building, change, requirements)
            else:
                write_bare_venv(building, self.base)
            link_base(building, self.base)
            plain = requirements if not self.for_tests else self._requirements(for_tests=False)
            Stamp(self._digest(plain), list(change.names), with_tests=self.for_tests).write(building)
            _move_into_place(building, self.path)
        except OSError as error:
            raise VenvError(f"The venv {self.path} can't be written ({error}): set +uv_venv_dir.") from error
        finally:
            shutil.rmtree(building, ignore_errors=True)
        if change:
            self.report(f"({self.label}) Installed {', '.join(change.names)} in {time.monotonic() - started:.1f} s.")
        return self._ours()

    def _install(self, building: Path, change: Difference, requirements: Requirements) -> None:
        uv = self.settings.uv
        options = ["--relocatable", "--no-project", "--offline", "--python", str(self.base.executable)]
        made = uv.run(["venv", *options, str(building)], directory=self.directory)
        if made.code != 0:
            raise VenvError(f"The venv of {self.label} can't be made: {made.reason}")
        installed = uv.run_offline_first(
            ["pip", "install", "--no-deps", "--python", str(building / "bin/python"), "-r", "-"],
            directory=self.directory,
            stdin="\n".join([*requirements.options, *change.packages]) + "\n",
        )
        if installed.code != 0:
            raise VenvError(
                f"The packages of {self.label} can't be installed: {installed.reason} "
                f"Without a network they must be in uv's cache."
            )

    def _ours(self) -> Venv:
        library = self.path / self.base.library
        return Venv(self.path, "ours", self.path / "bin/python", library, provided_modules(self.path, self.base))

    def _foreign(self) -> Venv:
        return Venv(self.path, "foreign", self.path / "bin/python", self.path / self.base.library)


def _venv_root(configured: Any) -> Path | None:
    root = Path(os.path.abspath(configured or WORKING_DIR))  # noqa: PTH100 - symlinks are part of the name
    return None if root.resolve() == PARENT_DIR.resolve() else root


def _keep_quiet(_: str) -> None:
    return


def _is_complete(venv: Path) -> bool:
    return os.access(venv / "bin/python", os.X_OK) and (venv / "bin/activate").exists()


def _is_importable(name: str) -> bool:
    """Whether the base has a real module of this name; a mere folder on the path is none."""
    spec = find_spec(name)
    return spec is not None and spec.origin is not None


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@contextlib.contextmanager
def _lock(venv: Path, report: Report) -> Iterator[None]:
    """One builder at a time. The lock file stays, since removing it would let two in."""
    try:
        venv.parent.mkdir(parents=True, exist_ok=True)
        file = venv.with_name(venv.name + LOCK_SUFFIX).open("a")
    except OSError as error:
        raise VenvError(f"The venv {venv} can't be written ({error.strerror}): set +uv_venv_dir.") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            report(f"Waiting for another process that builds {venv} …")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _remove_leftovers(venv: Path) -> None:
    """What a killed builder left; nobody else builds while we hold the lock."""
    for pattern in (".building-*", ".replaced-*"):
        for leftover in venv.parent.glob(venv.name + pattern):
            shutil.rmtree(leftover, ignore_errors=True)


def _move_into_place(building: Path, venv: Path) -> None:
    replaced = venv.with_name(f"{venv.name}.replaced-{os.getpid()}")
    if venv.is_symlink():
        venv.unlink()
    elif venv.exists():
        venv.rename(replaced)
    building.rename(venv)
    shutil.rmtree(replaced, ignore_errors=True)
