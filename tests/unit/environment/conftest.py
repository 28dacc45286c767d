"""An empty project per test, with the agents of this checkout in reach and nothing kept from elsewhere."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.unit.config.conftest import write

__all__ = ["write"]

Write = Callable[[str, str], Path]

CONFIG = """
words:
  resources_servers: {words: {entrypoint: app.py, domain: games, grading_mode: strict}}
words_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: words}
      model_server: {type: responses_api_models, name: policy_model}
      datasets:
      - {name: example, type: example, jsonl_fpath: environments/words/data/example.jsonl}
"""
MANIFEST = {
    "name": "words",
    "version": "0.1.0",
    "kind": "environment",
    "integration_profile": "custom-gym-verifier",
    "domain": "games",
    "description": "Guess words",
    "modality": "text",
    "licensing": "Apache-2.0",
    "authors": ["Somebody"],
    "reward": {"range": [0.0, 1.0], "higher_is_better": True},
    "resources_server": "words",
    "agent_server": "simple_agent",
    "datasets": [{"name": "example", "type": "example", "jsonl_fpath": "environments/words/data/example.jsonl"}],
    "model_server": "policy_model",
    "grading_mode": "strict",
}
ROW = '{"responses_create_params": {"input": [{"role": "user", "content": "Guess."}]}}\n'


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("NEMO_GYM_EXTRA_ROOTS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield folder


@pytest.fixture
def manifest(write: Write) -> Callable[..., Path]:
    """Writes an environment `words` that is right, with a manifest that differs in some fields; None drops one."""

    def described(**changed: object) -> Path:
        write("environments/words/config.yaml", CONFIG)
        write("environments/words/data/example.jsonl", ROW * 2)
        fields = {key: value for key, value in {**MANIFEST, **changed}.items() if value is not None}
        return write("environments/words/manifest.yaml", yaml.safe_dump(fields))

    return described
