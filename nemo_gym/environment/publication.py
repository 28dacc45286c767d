"""Whether an environment is ready for others. Nothing leaves this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nemo_gym.config.environment_catalog import resolve_catalog_entry
from nemo_gym.config.keys import RESOURCES_SERVERS
from nemo_gym.config.roots import resolve_under_roots
from nemo_gym.environment.errors import EnvironmentPublicationError
from nemo_gym.environment.manifest import EnvironmentManifest
from nemo_gym.environment.validation import ValidatedEnvironment, validated
from nemo_gym.environment.verifier_run import exercise_environment

_PLACEHOLDER = "todo"


@dataclass(frozen=True)
class Publication:
    """An environment that passed every check. `status` is what the catalog says of it."""

    name: str
    version: str
    kind: str
    status: str | None
    manifest_path: str
    verifier_cases: int
    still_open: tuple[str, ...] = ()
    """Files for readers that still say TODO."""

    def as_json(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if value is not None and key != "still_open"}


def publish(manifest_path: Path) -> Publication:
    """Check an environment in full: its files, its verifier, its texts, its place in the catalog.

    Raises ConfigError naming what isn't ready.
    """
    environment = validated(manifest_path)
    _refuse_placeholders(environment.manifest, manifest_path)
    status = _status_in_catalog(environment)
    cases = exercise_environment(environment).cases
    manifest = environment.manifest
    return Publication(
        manifest.name,
        manifest.version,
        manifest.kind.value,
        status,
        environment.report.manifest_path,
        len(cases),
        _unfinished(environment),
    )


def _unfinished(environment: ValidatedEnvironment) -> tuple[str, ...]:
    folders = [Path(environment.report.manifest_path).parent]
    if environment.manifest.resources_server:
        folders.append(resolve_under_roots(Path(RESOURCES_SERVERS, environment.manifest.resources_server)))
    readmes = [folder / "README.md" for folder in folders]
    return tuple(str(path) for path in readmes if path.is_file() and "TODO" in path.read_text(encoding="utf-8"))


def _refuse_placeholders(manifest: EnvironmentManifest, path: Path) -> None:
    texts = {
        "description": [manifest.description],
        "authors": manifest.authors,
        "canonical_split": [manifest.canonical_split or ""],
        "standard_prompt_config": [manifest.standard_prompt_config or ""],
    }
    open_fields = [field for field, values in texts.items() if any(map(_is_placeholder, values))]
    if manifest.licensing == "unknown":
        open_fields.append("licensing")
    if open_fields:
        raise EnvironmentPublicationError(f"{path} still has to say: {', '.join(open_fields)}.")


def _is_placeholder(text: str) -> bool:
    return text.lower().startswith(_PLACEHOLDER)


def _status_in_catalog(environment: ValidatedEnvironment) -> str | None:
    manifest, path = environment.manifest, Path(environment.report.manifest_path)
    entry = resolve_catalog_entry(manifest.name, manifest.kind.value)
    if entry.manifest_path is None or entry.manifest_path.resolve() != path.resolve():
        raise EnvironmentPublicationError(
            f"The catalog's `{manifest.name}` is {entry.manifest_path or entry.config_path}, not {path}: "
            f"choose another name, or put this root first with --search-dir."
        )
    if entry.status not in ("experimental", None):
        raise EnvironmentPublicationError(f"The catalog lists `{manifest.name}` as {entry.status}.")
    return entry.status
