"""`gym env validate|test|publish NAME`: environments that a manifest describes."""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nemo_gym.cli.given import given, is_on
from nemo_gym.config.catalog import component_names
from nemo_gym.config.errors import ConfigError, RegistryError
from nemo_gym.config.keys import RESOURCES_SERVERS
from nemo_gym.config.notices import warn

if TYPE_CHECKING:
    from nemo_gym.environment.validation import ValidationReport

NAME, KIND, MANIFEST = "onboarding_name", "catalog_kind", "manifest_path"
_REFUSAL = "manifest-backed commands do not accept runtime config overrides"


def validate() -> None:
    """Check an environment's files against each other."""
    from nemo_gym.environment.validation import validate_environment

    values = given((NAME, KIND, MANIFEST, "sync", "json"), refusal=_REFUSAL)
    report = validate_environment(_manifest(values, "validate"), sync=is_on(values, "sync"))
    for warning in report.warnings:
        warn(warning)
    if is_on(values, "json"):
        _print_json(asdict(report))
    else:
        print("\n".join(_lines(report)))


def test() -> None:
    """Run an environment's verifier over its cases, in the venv of its resources server."""
    from nemo_gym.environment.validation import validated
    from nemo_gym.environment.verifier_run import exercise_environment

    values = given((NAME, KIND, "update_expected", "json"), refusal=_REFUSAL)
    environment = validated(_manifest(values, "test"))
    shown = exercise_environment(environment, update_expected=is_on(values, "update_expected"))
    if is_on(values, "json"):
        _print_json(shown.as_json())
    else:
        print(f"✓ Verifier: {shown.name} ({shown.resources_server}) {len(shown.cases)} cases passed.")


def publish() -> None:
    """Say whether an environment is ready for others. Nothing is sent anywhere."""
    from nemo_gym.environment.publication import publish as check

    values = given((NAME, KIND, "json"), refusal=_REFUSAL)
    if NAME not in values:
        from nemo_gym.errors import UsageError

        raise UsageError("name what to publish: gym env publish NAME.")
    ready = check(_manifest(values, "publish"))
    for path in ready.still_open:
        warn(f"{path} still says TODO.")
    if is_on(values, "json"):
        _print_json(ready.as_json())
        return
    status = f", {ready.status}" if ready.status else ""
    print(f"✓ Ready: {ready.kind} {ready.name} {ready.version}{status}, {ready.verifier_cases} verifier cases passed.")


def validate_file(path: str) -> None:
    """Check an environment's file as far as that can be done without running a verifier.

    Raises EnvironmentFileError for a file that is wrong.
    """
    from nemo_gym.onefile.loading import load_environment

    environment = load_environment(Path(os.path.abspath(path)))  # noqa: PTH100 - symlinks kept
    rows = environment.rows()
    print(f"✓ {environment.name} is valid: {_count(len(rows))}. Its verifier is run by `gym env test {path}`.")


def _manifest(values: Mapping[str, str], command: str) -> Path:
    """The manifest that `gym env <command>` is to look at. Raises ConfigError."""
    from nemo_gym.registry import resolve_catalog_entry

    if MANIFEST in values:
        clash = NAME if NAME in values else KIND if KIND in values else None
        if clash is not None:
            raise ConfigError(f"--manifest says what is meant: {_SPELLED[clash]} beside it is one too many.")
        return Path(values[MANIFEST])
    name, kind = values[NAME], values.get(KIND)
    try:
        entry = resolve_catalog_entry(name, kind)
    except RegistryError:
        if kind is None and (server := _server_called(name)):
            raise ConfigError(_without_manifest(name, command, server, "environments/NAME")) from None
        raise
    if entry.manifest_path is None:
        selector = entry.resources_server_selector
        place = "environments/NAME" if selector else str(entry.path)
        raise ConfigError(_without_manifest(entry.name, command, selector, place, f"--{entry.kind} {entry.name}"))
    return entry.manifest_path


def _server_called(name: str) -> str | None:
    """The resources server that a name means, as its folder is called."""
    server = name.removeprefix(f"{RESOURCES_SERVERS}/")
    return server if server in component_names(RESOURCES_SERVERS) else None


def _without_manifest(name: str, command: str, server: str | None, place: str, flag: str = "") -> str:
    """What to say of something without a manifest, and which command does for it what was wanted."""
    if server and command == "test":
        folder = server.partition("/")[0]
        return f"`{name}` is a resources server: its tests are run by `gym env test --resources-server {folder}`."
    what = f"`{name}` is a resources server and" if server else f"`{name}`"
    chosen = f"--resources-server {server}" if server else flag
    if command == "publish":
        return f"{what} has no manifest: describe it in {place}/manifest.yaml (docs/publishing.md says how)."
    config = f"check its config with `gym env validate {chosen}`"
    return f"{what} has no manifest: {config}, or describe it in {place}/manifest.yaml (docs/publishing.md says how)."


_SPELLED = {NAME: "a NAME", KIND: "--kind"}


def _lines(report: "ValidationReport") -> list[str]:
    inferred = report.inferred_profile or "unknown"
    profiles = f"profile={report.declared_profile} inferred={inferred}"
    lines = [
        f"✓ Manifest: {report.name} {report.version} kind={report.kind} {profiles}",
        f"  {report.profile_evidence}",
        "✓ Components:",
        *(f"  {each.role}: {each.name} -> {each.implementation} [{each.boundary}]" for each in report.components),
        "✓ Datasets:",
        *(f"  {each.name}: {_count(each.rows)} ({each.type})" for each in report.datasets),
    ]
    if report.synchronized_fields:
        lines.append(f"✓ Synchronized: {', '.join(report.synchronized_fields)}")
    return lines


def _count(rows: int | None) -> str:
    return "no rows yet" if rows is None else f"{rows} row{'' if rows == 1 else 's'}"


def _print_json(data: Mapping[str, Any]) -> None:
    json.dump(data, sys.stdout, indent=2, ensure_ascii=False)
    print()
