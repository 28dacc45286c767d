"""`manifest.yaml`: what an environment or benchmark says about itself, beside the config that runs it."""

from __future__ import annotations

import datetime
import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    StringConstraints,
    ValidationError,
    model_validator,
)

from nemo_gym.config.errors import ConfigError
from nemo_gym.config.facts import MANIFEST_FILE_NAME
from nemo_gym.config.references import Domain
from nemo_gym.config.yaml_files import load_yaml_mapping
from nemo_gym.environment.errors import ManifestError

TREES = {"environment": "environments", "benchmark": "benchmarks"}


class Kind(StrEnum):
    """What is run: to train and evaluate on, or only to compare with others."""

    ENVIRONMENT = "environment"
    BENCHMARK = "benchmark"


class IntegrationProfile(StrEnum):
    """Which part of a rollout is the environment's own: the verifier, the agent's loop in or outside of Gym, or the
    whole collection."""

    CUSTOM_GYM_VERIFIER = "custom-gym-verifier"
    CUSTOM_GYM_AGENT_LOOP = "custom-gym-agent-loop"
    EXTERNAL_AGENT_LOOP = "external-agent-loop"
    EXTERNAL_ROLLOUT_DRIVER = "external-rollout-driver"


class Determinism(StrEnum):
    """Whether the same seed gives the same reward."""

    SEEDED = "seeded"
    STOCHASTIC = "stochastic"
    UNKNOWN = "unknown"


class DatasetType(StrEnum):
    TRAIN = "train"
    VALIDATION = "validation"
    EXAMPLE = "example"
    BENCHMARK = "benchmark"


class SessionModel(StrEnum):
    """What one session spans."""

    EPISODE = "episode"
    STEP = "step"


class State(StrEnum):
    NONE = "none"
    PER_SESSION = "per_session"


class PromptSource(StrEnum):
    """Who makes the prompt: a template from a row's fields, the script that prepared the rows, or the agent."""

    TEMPLATE = "template"
    PREPARED = "prepared"
    AGENT = "agent"


class Lifecycle(StrEnum):
    ACTIVE = "active"
    DEPRECATED = "deprecated"


_NO_LICENSE = ("internal", "proprietary", "unknown")
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/]+\S*|(?:[\w.-]+@)?[\w.-]+:[^\s:/]\S*", re.IGNORECASE)
_FUNCTION = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def _license(value: str) -> str:
    from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

    if value.lower() in _NO_LICENSE:
        return value.lower()
    try:
        return str(canonicalize_license_expression(value))
    except InvalidLicenseExpression as error:
        raise ValueError(f"must be an SPDX expression, or {', '.join(_NO_LICENSE)}") from error


def _address(value: str) -> str:
    if not _ADDRESS.fullmatch(value):
        raise ValueError("must be a URL or a git address such as git@host:owner/name")
    return value


def _function(value: str) -> str:
    if not _FUNCTION.fullmatch(value):
        raise ValueError("must name a function as package.module:function")
    return value


def _unique(values: list[str]) -> list[str]:
    if len(set(values)) != len(values):
        raise ValueError("must not repeat itself")
    return values


Text = Annotated[str, StringConstraints(min_length=1)]
Ref = Annotated[str, StringConstraints(pattern=r"^\S+$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True, validate_default=True)


class ManifestDataset(_Strict):
    """A data set, as the config declares it."""

    name: Text
    type: DatasetType
    jsonl_fpath: Text
    prepare_script: Text | None = None
    prompt_config: Text | None = None
    num_repeats: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def require_a_script_for_benchmarks(self) -> Self:
        if self.type is DatasetType.BENCHMARK and self.prepare_script is None:
            raise ValueError("a data set of type benchmark needs prepare_script")
        return self


class Reward(_Strict):
    """What rewards are like: both ends of their range, and which end is the good one."""

    range: tuple[FiniteFloat, FiniteFloat]
    higher_is_better: bool

    @model_validator(mode="after")
    def require_order(self) -> Self:
        if self.range[0] > self.range[1]:
            raise ValueError("range must have its lower end first")
        return self


class AdoptedFrom(_Strict):
    """Where an environment comes from, and when it was last compared with its source."""

    source: Annotated[Text, AfterValidator(_address)]
    ref: Ref
    reconciled: datetime.date


class EnvironmentManifest(_Strict):
    """A whole manifest. The fields from `resources_server` to `grading_mode` repeat what the config says, so that
    nothing need be composed to read them; `gym env validate` compares the two."""

    name: Text
    version: Text
    experimental: bool = True
    kind: Kind
    integration_profile: IntegrationProfile
    domain: Domain
    description: Text
    modality: Text
    licensing: Annotated[Text, AfterValidator(_license)] = "unknown"
    authors: Annotated[list[Text], Field(min_length=1), AfterValidator(_unique)]
    reward: Reward
    determinism: Determinism = Determinism.UNKNOWN
    config_path: Text = "config.yaml"
    dataset_owner: Text | None = None
    resources_server: Text | None
    agent_server: Text
    datasets: Annotated[list[ManifestDataset], Field(min_length=1)]
    model_server: Text | None = None
    rollout_driver: Annotated[Text, AfterValidator(_function)] | None = None
    grading_mode: Text | None = None
    session_model: SessionModel | None = None
    state: State | None = None
    sandbox: Text | None = None
    canonical_split: Text | None = None
    prompt_source: PromptSource = PromptSource.TEMPLATE
    standard_prompt_config: Text | None = None
    adopted_from: AdoptedFrom | None = None
    lifecycle: Lifecycle = Lifecycle.ACTIVE

    @model_validator(mode="after")
    def check_fields_together(self) -> Self:
        problems = [*self._profile_problems(), *self._benchmark_problems(), *self._prompt_problems()]
        names = [dataset.name for dataset in self.datasets]
        if len(set(names)) != len(names):
            problems.append("datasets must have different names")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def _profile_problems(self) -> list[str]:
        profile = self.integration_profile
        needed = _NEEDED_BY_PROFILE[profile]
        problems = [f"the profile {profile} needs {field}" for field in needed if getattr(self, field) is None]
        if profile is not IntegrationProfile.EXTERNAL_ROLLOUT_DRIVER and self.rollout_driver is not None:
            problems.append(f"rollout_driver is for external-rollout-driver, not for {profile}")
        return problems

    def _benchmark_problems(self) -> list[str]:
        if self.kind is not Kind.BENCHMARK:
            return []
        problems = [] if self.canonical_split else ["a benchmark needs canonical_split"]
        if all(dataset.type is not DatasetType.BENCHMARK for dataset in self.datasets):
            problems.append("a benchmark needs a data set of type benchmark")
        if self.prompt_source is PromptSource.TEMPLATE and self.standard_prompt_config is None:
            problems.append("a benchmark whose prompt_source is template needs standard_prompt_config")
        return problems

    def _prompt_problems(self) -> list[str]:
        problems = []
        if self.prompt_source is PromptSource.PREPARED and self.standard_prompt_config is not None:
            problems.append("prepared prompts have no standard_prompt_config")
        if self.prompt_source is not PromptSource.TEMPLATE and any(set_.prompt_config for set_ in self.datasets):
            problems.append("only template prompts have a prompt_config on a data set")
        return problems


_NEEDED_BY_PROFILE: dict[IntegrationProfile, tuple[str, ...]] = {
    IntegrationProfile.CUSTOM_GYM_VERIFIER: ("model_server", "resources_server"),
    IntegrationProfile.CUSTOM_GYM_AGENT_LOOP: ("model_server",),
    IntegrationProfile.EXTERNAL_AGENT_LOOP: (),
    IntegrationProfile.EXTERNAL_ROLLOUT_DRIVER: ("rollout_driver",),
}


def load_manifest(path: Path) -> EnvironmentManifest:
    """The manifest of a file. Raises ManifestError with a line for each thing that is wrong."""
    if not path.is_file():
        raise ManifestError(f"There is no manifest {path}.")
    try:
        return parse_manifest(load_yaml_mapping(path), str(path))
    except ManifestError:
        raise
    except ConfigError as error:
        raise ManifestError(str(error)) from error


def parse_manifest(data: dict[str, Any], shown_as: str = MANIFEST_FILE_NAME) -> EnvironmentManifest:
    """A manifest from plain data. Raises ManifestError as `load_manifest` does."""
    try:
        return EnvironmentManifest.model_validate(data)
    except ValidationError as error:
        lines = [f"- {_place(issue['loc'])}: {_message(issue)}" for issue in error.errors(include_url=False)]
        raise ManifestError("\n".join([f"{shown_as} is no valid manifest:", *lines])) from error


def dump_manifest(manifest: EnvironmentManifest) -> str:
    """The manifest as YAML, fields in their order, without those that say nothing."""
    import yaml

    fields = manifest.model_dump(mode="json", exclude_none=True)
    for name in ("config_path", "prompt_source"):
        if fields[name] == EnvironmentManifest.model_fields[name].default:
            del fields[name]
    fields.setdefault("resources_server", None)
    ordered = {name: fields[name] for name in EnvironmentManifest.model_fields if name in fields}
    return yaml.safe_dump(ordered, sort_keys=False, allow_unicode=True, width=120)


def manifest_json_schema() -> dict[str, Any]:
    """The JSON schema of a manifest, draft 2020-12."""
    from nemo_gym.environment.manifest_schema import schema

    return schema()


def resolve_manifest_config_path(manifest_path: Path, manifest: EnvironmentManifest) -> Path:
    """The config that a manifest describes. Raises ManifestError when it lies outside of what the manifest may reach:
    the tree of environments or benchmarks it is in, else its own folder."""
    folder = manifest_path.absolute().parent
    config = folder / manifest.config_path
    bound = catalog_tree(manifest_path) or folder
    if Path(manifest.config_path).is_absolute() or not config.resolve().is_relative_to(bound.resolve()):
        raise ManifestError(f"{manifest_path}: config_path {manifest.config_path} leads out of {bound}.")
    return config


def catalog_tree(manifest_path: Path) -> Path | None:
    """The `environments` or `benchmarks` folder a manifest lies below, the innermost; None for one elsewhere."""
    return next((parent for parent in manifest_path.absolute().parents if parent.name in TREES.values()), None)


def _place(location: tuple[int | str, ...]) -> str:
    return ".".join(map(str, location)) or "manifest"


def _message(issue: Any) -> str:
    if issue["type"] == "extra_forbidden":
        from nemo_gym.config.hints import did_you_mean

        return f"is no field of a manifest.{did_you_mean(str(issue['loc'][-1]), EnvironmentManifest.model_fields)}"
    return str(issue["msg"]).removeprefix("Value error, ")
