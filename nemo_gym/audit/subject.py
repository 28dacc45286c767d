"""What a name asks to audit: configs, and what their component says in its `audit.py`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nemo_gym.audit.errors import AuditError
from nemo_gym.audit.stage import importable, imported
from nemo_gym.audit.statement import Audit
from nemo_gym.config.catalog import config_files
from nemo_gym.config.entries import implementation_blocks
from nemo_gym.config.hints import did_you_mean
from nemo_gym.config.keys import RESOURCES_SERVERS
from nemo_gym.config.metadata import raw_config
from nemo_gym.config.roots import component_search_roots

ENVIRONMENTS = "environments"
STATEMENT_FILE = "audit.py"


@dataclass(frozen=True)
class Subject:
    """A config to audit, and the folder of the component it is of."""

    config_path: Path
    folder: Path

    @property
    def flavor(self) -> str:
        return self.config_path.stem

    def statement(self) -> Audit | None:
        """What the component says; None where it says nothing. Raises AuditError for a statement that is none."""
        path = self.folder / STATEMENT_FILE
        if not path.is_file():
            return None
        try:
            with importable(self.folder):
                said = getattr(imported(f"{self.folder.parent.name}.{self.folder.name}.audit", path), "AUDIT", None)
        except Exception as error:
            raise AuditError(f"{path} can't be imported: {type(error).__name__}: {error}.") from error
        if isinstance(said, dict):
            if self.flavor not in said:
                raise AuditError(f"{path}: AUDIT says nothing of {self.flavor}; it has {', '.join(map(str, said))}.")
            said = said[self.flavor]
        if not isinstance(said, Audit):
            raise AuditError(f"{path}: it needs `AUDIT = Audit(…)`, or one for each config by its name.")
        return said


def subjects(name: str) -> list[Subject]:
    """The configs a name means: of a resources server all, or the one of `NAME/FLAVOR`; else an environment's.

    Raises AuditError for a name that means nothing.
    """
    folder_name, _, flavor = name.partition("/")
    for root in component_search_roots():
        folder = root / RESOURCES_SERVERS / folder_name
        found = [path for path in config_files(folder / "configs") if not flavor or path.stem == flavor]
        found = [path for path in found if flavor or _is_whole(path)]
        if found:
            return [Subject(path, folder) for path in found]
        environment = root / ENVIRONMENTS / name
        if (environment / "config.yaml").is_file():
            return [Subject(environment / "config.yaml", _component_of(environment))]
    parts = [root / RESOURCES_SERVERS / folder_name for root in component_search_roots() if not flavor]
    if part := next((folder for folder in parts if any(config_files(folder / "configs"))), None):
        raise AuditError(
            f"No config of {part} has an agent that could run its rows, so it can't be audited by itself; its verifier "
            f"is tested by `gym env test --resources-server {folder_name}`."
        )
    known = {
        child.name
        for root in component_search_roots()
        for kind in (RESOURCES_SERVERS, ENVIRONMENTS)
        if (root / kind).is_dir()
        for child in (root / kind).iterdir()
        if child.is_dir()
    }
    raise AuditError(f"There is no resources server or environment `{name}` to audit.{did_you_mean(name, known)}")


def _is_whole(path: Path) -> bool:
    """Whether a config has an agent that can run its rows: parts of other configs are audited with those."""
    return any(implementation_blocks(raw_config(path), "responses_api_agents"))


def _component_of(environment: Path) -> Path:
    """The environment's own folder if that has a statement, else its resources server's."""
    if (environment / STATEMENT_FILE).is_file():
        return environment
    raw = raw_config(environment / "config.yaml")
    paths = [Path(path) for path in raw.get("config_paths") or () if str(path).startswith(f"{RESOURCES_SERVERS}/")]
    for root in component_search_roots():
        for path in paths:
            if (root / path.parts[0] / path.parts[1]).is_dir():
                return root / path.parts[0] / path.parts[1]
    return environment
