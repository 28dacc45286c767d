"""`gym env init`: the files of something new, which pass every check as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nemo_gym.config.keys import (
    CONFIG_PATHS_KEY_NAME,
    ENVIRONMENT_SERVERS,
    INHERIT_FROM_KEY_NAME,
    LEGACY_AGENT,
    POLICY_MODEL_KEY_NAME,
    RESOURCES_SERVERS,
    RESPONSES_API_AGENTS,
    RESPONSES_API_MODELS,
)
from nemo_gym.config.notices import warn
from nemo_gym.config.roots import IS_EDITABLE_INSTALL, PARENT_DIR, component_search_roots
from nemo_gym.environment.errors import ScaffoldError
from nemo_gym.environment.manifest import TREES, IntegrationProfile, dump_manifest, parse_manifest
from nemo_gym.environment.scaffold_files import ScaffoldResult, filled, write_all
from nemo_gym.environment.scaffold_parts import (
    agent_files,
    as_lines,
    check_name,
    example_rows,
    raw_rows,
    requirement,
    server_files,
)
from nemo_gym.environment.scaffold_reuse import SIMPLE_AGENT, ReusedVerifier, find_reused_verifier

_OWN_LOOPS = (IntegrationProfile.CUSTOM_GYM_AGENT_LOOP.value, IntegrationProfile.EXTERNAL_AGENT_LOOP.value)
_DRIVER = IntegrationProfile.EXTERNAL_ROLLOUT_DRIVER.value
_LICENSE_NOTE = "# SPDX-License-Identifier: Apache-2.0\n"


def scaffold_resources_server(directory: Path, checkout_root: Path | None = None) -> ScaffoldResult:
    """Make a resources server with its agent's config and five example rows. `checkout_root` is the checkout of Gym
    whose code it runs on, by default the running one where it is one.

    Raises ScaffoldError for a name that can't be a module's, ScaffoldConflictError where files are in the way.
    """
    directory = directory.absolute()
    check_name(directory.name, is_python=True)
    checkout = checkout_root or (PARENT_DIR if IS_EDITABLE_INSTALL else None)
    files = server_files(directory.name, gym=requirement(directory, checkout), standalone=True)
    if directory.parent.name == RESOURCES_SERVERS:
        _warn_of_hidden(directory.parents[1], Path(RESOURCES_SERVERS, directory.name))
    return write_all(directory.parent, directory, {Path(directory.name, path): text for path, text in files.items()})


def scaffold_environment(
    *,
    kind: str,
    name: str,
    profile: str = IntegrationProfile.CUSTOM_GYM_VERIFIER.value,
    reuse_verifier: str | None = None,
    reward_range: tuple[float, float] | None = None,
    higher_is_better: bool | None = None,
    root: Path | None = None,
) -> ScaffoldResult:
    """Make an environment or benchmark below `root` (default: the current folder), with a verifier of its own or on
    one that is there; then the rewards of that must be told.

    Raises ScaffoldError for what doesn't go together, ScaffoldConflictError where files are in the way.
    """
    base = (root or Path.cwd()).absolute()
    told = reward_range is not None, higher_is_better is not None
    if reuse_verifier is not None and not all(told):
        raise ScaffoldError("a reused verifier's rewards must be told: --reward-range LOW HIGH and --higher-is-better.")
    if reuse_verifier is None and any(told):
        raise ScaffoldError("a new verifier rewards with 0 to 1: rewards are told of a reused one (--reuse-verifier).")
    profile = IntegrationProfile(profile).value
    check_name(name, is_python=reuse_verifier is None or profile != IntegrationProfile.CUSTOM_GYM_VERIFIER.value)
    reused = find_reused_verifier(reuse_verifier, base) if reuse_verifier is not None else None
    workload = Workload(kind, name, profile, base, reused, reward_range or (0.0, 1.0), higher_is_better is not False)
    _warn_of_hidden(base, workload.folder)
    return write_all(base, base / workload.folder, workload.files())


@dataclass(frozen=True)
class Workload:
    """An environment or benchmark to be made."""

    kind: str
    name: str
    profile: str
    root: Path
    reused: ReusedVerifier | None
    reward_range: tuple[float, float]
    higher_is_better: bool

    @property
    def folder(self) -> Path:
        return Path(TREES[self.kind], self.name)

    @property
    def is_benchmark(self) -> bool:
        return self.kind == "benchmark"

    @property
    def scorer(self) -> str:
        return self.reused.name if self.reused else self.name

    @property
    def agent_kind(self) -> str:
        return f"{self.name}_agent" if self.profile in _OWN_LOOPS else SIMPLE_AGENT

    @property
    def agent(self) -> str:
        return self._instance("agent")

    @property
    def environment_server(self) -> str:
        return self._instance("environment_server")

    @property
    def resources(self) -> str:
        return self.reused.resources_instance if self.reused else f"{self.name}_resources_server"

    def files(self) -> dict[Path, str]:
        """Every file, by its path below the root."""
        files = {self.folder / path: text for path, text in self._own_files().items()}
        if self.reused is None:
            folder = Path(RESOURCES_SERVERS, self.name)
            gym = requirement(self.root / folder, self._checkout())
            files |= {folder / path: text for path, text in self._server_files(gym).items()}
        if self.profile in _OWN_LOOPS:
            folder = Path(RESPONSES_API_AGENTS, self.agent_kind)
            gym = requirement(self.root / folder, self._checkout())
            files |= {folder / path: text for path, text in agent_files(self.name, self.profile, gym=gym).items()}
        return files

    def _server_files(self, gym: str) -> dict[str, str]:
        return server_files(self.name, gym=gym, standalone=False, has_raw_rows=self.is_benchmark)

    def _own_files(self) -> dict[str, str]:
        files = {
            "__init__.py": _LICENSE_NOTE,
            "README.md": filled(
                "workload/README.md", name=self.name, kind=self.kind, profile=self.profile, scorer=self.scorer
            ),
            "manifest.yaml": self._manifest(),
            "config.yaml": _as_yaml(self.config()),
            "data/example.jsonl": as_lines(raw_rows() if self.is_benchmark else example_rows()),
        }
        if self.is_benchmark:
            files |= {
                "data/source.jsonl": as_lines(raw_rows()),
                "prompt.yaml": filled("workload/prompt.yaml"),
                "prepare.py": filled("workload/prepare.py", name=self.name),
            }
        if self.profile == _DRIVER:
            files["rollout_driver.py"] = filled("workload/rollout_driver.py", name=self.name)
        return files

    def config(self) -> dict[str, Any]:
        """What runs: the verifier's config, the agent, and the data set on whichever of them declares it."""
        scorer_config = self.reused.config if self.reused else f"resources_servers/{self.name}/configs/{self.name}.yaml"
        config: dict[str, Any] = {CONFIG_PATHS_KEY_NAME: [scorer_config], self.agent: self._agent_entry()}
        if self.reused is None:
            config[self.resources] = {RESOURCES_SERVERS: {self.name: {"datasets": [self.dataset()]}}}
        elif self.reused.has_datasets:
            config[self.resources] = {RESOURCES_SERVERS: {self.scorer: {"datasets": []}}}
        config[self.environment_server] = self._environment_entry()
        if self.profile == _DRIVER:
            config["rollout_collection_driver"] = self._driver()
        return config

    def dataset(self) -> dict[str, Any]:
        """The data set, as a config and a manifest declare it."""
        entry: dict[str, Any] = {
            "name": self.name,
            "type": "benchmark" if self.is_benchmark else "example",
            "jsonl_fpath": f"{self.folder.as_posix()}/data/example.jsonl",
        }
        if self.is_benchmark:
            entry["prepare_script"] = f"{self.folder.as_posix()}/prepare.py"
            entry["prompt_config"] = f"{self.folder.as_posix()}/prompt.yaml"
        return {**entry, "num_repeats": 1}

    def _agent_entry(self) -> dict[str, Any]:
        block: dict[str, Any] = {
            "entrypoint": "app.py",
            "resources_server": {"type": RESOURCES_SERVERS, "name": self.resources},
            "model_server": {"type": RESPONSES_API_MODELS, "name": POLICY_MODEL_KEY_NAME},
        }
        if self.reused is None:
            return {RESPONSES_API_AGENTS: {self.agent_kind: block}}
        block["datasets"] = [self.dataset()]
        inherited = self.reused.agent_instance
        if inherited is None:
            return {RESPONSES_API_AGENTS: {self.agent_kind: block}}
        changed = {"datasets": block["datasets"]}
        if self.profile not in _OWN_LOOPS:
            return {INHERIT_FROM_KEY_NAME: inherited, RESPONSES_API_AGENTS: {SIMPLE_AGENT: changed}}
        source = ".".join([inherited, RESPONSES_API_AGENTS, SIMPLE_AGENT])
        return {RESPONSES_API_AGENTS: {self.agent_kind: {INHERIT_FROM_KEY_NAME: source, **changed}}}

    def _environment_entry(self) -> dict[str, Any]:
        reused = self.reused
        if reused is None or reused.environment_instance is None:
            reference = {"type": RESPONSES_API_AGENTS, "name": self.agent}
            return {ENVIRONMENT_SERVERS: {LEGACY_AGENT: {"entrypoint": "app.py", "agent_server": reference}}}
        changed = {field: {"name": self.agent} for field in reused.environment_refs}
        return {
            INHERIT_FROM_KEY_NAME: reused.environment_instance,
            ENVIRONMENT_SERVERS: {str(reused.environment_kind): changed},
        }

    def _manifest(self) -> str:
        fields: dict[str, Any] = {
            "name": self.name,
            "version": "0.1.0",
            "kind": self.kind,
            "integration_profile": self.profile,
            "domain": "other",
            "description": "TODO: what is asked, and how it is scored",
            "modality": "text",
            "licensing": "unknown",
            "authors": ["TODO"],
            "reward": {"range": list(self.reward_range), "higher_is_better": self.higher_is_better},
            "resources_server": self.scorer,
            "agent_server": self.agent_kind,
            "datasets": [self.dataset()],
            "model_server": POLICY_MODEL_KEY_NAME,
        }
        if self.profile == _DRIVER:
            fields["rollout_driver"] = self._driver()
        if self.is_benchmark:
            fields["canonical_split"] = "TODO"
            fields["standard_prompt_config"] = self.dataset()["prompt_config"]
        return dump_manifest(parse_manifest(fields))

    def _driver(self) -> str:
        return f"{'.'.join(self.folder.parts)}.rollout_driver:run_rollout_collection"

    def _instance(self, role: str) -> str:
        taken = self.reused.taken if self.reused else frozenset()
        plain = f"{self.name}_{role}"
        return f"{self.name}_catalog_{role}" if plain in taken else plain

    def _checkout(self) -> Path | None:
        """The checkout that is worked in, if it is one of Gym itself."""
        is_checkout = (self.root / "pyproject.toml").is_file() and (self.root / "nemo_gym").is_dir()
        return self.root if is_checkout else None


def _warn_of_hidden(base: Path, folder: Path) -> None:
    """Say which component of another root will not be found any more once `base` has one of the same name."""
    if (base / folder).exists():
        return
    for root in component_search_roots():
        if (root / folder).is_dir() and root.resolve() != base.resolve():
            warn(f"{folder} in {base} will hide the one in {root}: give it another name if that isn't meant.")
            return


def _as_yaml(config: Mapping[str, Any]) -> str:
    import yaml

    return yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True, width=120)
