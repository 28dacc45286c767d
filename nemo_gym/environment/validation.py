"""Whether an environment's manifest, config, data and code agree, told without starting anything."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from nemo_gym.config.keys import RESPONSES_API_AGENTS
from nemo_gym.config.prompts import load_prompt_config
from nemo_gym.config.replacing import replacing
from nemo_gym.config.roots import resolve_under_roots
from nemo_gym.environment.composition import Component, Composition, read_composition, searched_first
from nemo_gym.environment.errors import EnvironmentValidationError
from nemo_gym.environment.manifest import (
    TREES,
    EnvironmentManifest,
    Kind,
    PromptSource,
    catalog_tree,
    dump_manifest,
    load_manifest,
    parse_manifest,
    resolve_manifest_config_path,
)
from nemo_gym.environment.profiles import infer_profile
from nemo_gym.environment.rows import CheckedDataset, check_dataset, check_function


@dataclass(frozen=True)
class ValidationReport:
    """What was found. `synchronized_fields` are those the manifest got from the config."""

    name: str
    version: str
    kind: str
    declared_profile: str
    inferred_profile: str | None
    profile_evidence: str
    manifest_path: str
    config_path: str
    components: list[Component]
    datasets: list[CheckedDataset]
    rollout_driver: str | None
    grading_mode: str | None
    synchronized_fields: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ValidatedEnvironment:
    """An environment whose files agree."""

    manifest: EnvironmentManifest
    composition: Composition
    report: ValidationReport


def validate_environment(
    manifest_path: Path, config_path: Path | None = None, *, sync: bool = False
) -> ValidationReport:
    """Check an environment; see `validated`."""
    return validated(manifest_path, config_path, sync=sync).report


def validated(manifest_path: Path, config_path: Path | None = None, *, sync: bool = False) -> ValidatedEnvironment:
    """An environment that has passed every check. With `sync` the manifest's mirrors are taken from the config, and
    written when all else is right.

    Raises ConfigError: ManifestError for the manifest itself, EnvironmentValidationError for what contradicts it.
    """
    manifest_path = manifest_path.absolute()
    with searched_first(environment_root(manifest_path)):
        manifest = load_manifest(manifest_path)
        _check_place(manifest, manifest_path)
        config = config_path or resolve_manifest_config_path(manifest_path, manifest)
        if not config.is_file():
            raise EnvironmentValidationError(f"{manifest_path} describes {config}, which does not exist.")
        composition = read_composition(config, manifest.dataset_owner)
        manifest, changed = _reconciled(manifest, manifest_path, composition, sync=sync)
        report = _checked(manifest, manifest_path, config, composition, changed)
        if changed:
            with replacing(manifest_path) as file:
                file.write(dump_manifest(manifest))
        return ValidatedEnvironment(manifest, composition, report)


def environment_root(manifest_path: Path) -> Path:
    """The folder that an environment's paths start from: the one that holds its `environments` or `benchmarks`."""
    tree = catalog_tree(manifest_path)
    return tree.parent if tree else manifest_path.absolute().parent


def _checked(
    manifest: EnvironmentManifest, manifest_path: Path, config: Path, composition: Composition, changed: list[str]
) -> ValidationReport:
    agent_folder = resolve_under_roots(Path(RESPONSES_API_AGENTS) / composition.agent.implementation)
    inferred, evidence = infer_profile(composition, agent_folder / composition.agent.entrypoint)
    warnings = _profile_warnings(manifest, inferred.value if inferred else None, evidence)
    _check_prompts(manifest)
    if manifest.rollout_driver is not None:
        module, _, function = manifest.rollout_driver.partition(":")
        check_function(f"{module.replace('.', '/')}.py", function, "rollout_driver")
    datasets = [check_dataset(dataset, manifest) for dataset in manifest.datasets]
    warnings += [f"The rows of `{each.name}` are not there yet: {each.path}." for each in datasets if each.rows is None]
    return ValidationReport(
        manifest.name,
        manifest.version,
        manifest.kind.value,
        manifest.integration_profile.value,
        inferred.value if inferred else None,
        evidence,
        str(manifest_path),
        str(config.absolute()),
        composition.components,
        datasets,
        composition.rollout_driver,
        composition.grading_mode,
        changed,
        warnings,
    )


def _check_place(manifest: EnvironmentManifest, path: Path) -> None:
    tree = catalog_tree(path)
    expected = path.parent.relative_to(tree).as_posix() if tree else path.parent.name
    if manifest.name != expected:
        raise EnvironmentValidationError(f"{path} is named `{manifest.name}`: in this place it must be `{expected}`.")
    if tree and TREES[manifest.kind.value] != tree.name:
        raise EnvironmentValidationError(f"{path} is of the kind `{manifest.kind}`, which doesn't belong in {tree}.")


def _reconciled(
    manifest: EnvironmentManifest, path: Path, composition: Composition, *, sync: bool
) -> tuple[EnvironmentManifest, list[str]]:
    """The manifest with the config's mirrors, and the fields that differed; an error for these without `sync`."""
    told = {**manifest.model_dump(mode="json", exclude_none=True)}
    actual = composition.mirrors()
    defaults = {"num_repeats": 1}
    actual["datasets"] = [{**defaults, **dataset} for dataset in actual["datasets"]]
    differing = [name for name, value in actual.items() if told.get(name) != value]
    if not differing:
        return manifest, []
    if not sync:
        lines = [f"- {name}: {told.get(name)!r} in the manifest, {actual[name]!r} in the config" for name in differing]
        raise EnvironmentValidationError(
            "\n".join([f"{path} and its config differ (`--sync` takes the config's):", *lines])
        )
    updated = {**told, **{name: actual[name] for name in differing}}
    kept = {name: value for name, value in updated.items() if value is not None or name == "resources_server"}
    return parse_manifest(kept, f"{path}, synchronized,"), differing


def _profile_warnings(manifest: EnvironmentManifest, inferred: str | None, evidence: str) -> list[str]:
    declared = manifest.integration_profile.value
    if inferred in (None, declared):
        return []
    return [f"The manifest says {declared}, but this looks like {inferred}: {evidence}."]


def _check_prompts(manifest: EnvironmentManifest) -> None:
    standard = manifest.standard_prompt_config
    if manifest.kind is not Kind.BENCHMARK or standard is None:
        return
    if manifest.prompt_source is PromptSource.AGENT:
        load_prompt_config(standard)
        return
    for dataset in manifest.datasets:
        if dataset.type == "benchmark" and dataset.prompt_config != standard:
            raise EnvironmentValidationError(
                f"The data set `{dataset.name}` is prompted by {dataset.prompt_config}, "
                f"but standard_prompt_config is {standard}."
            )
