"""A project folder of its own for every test, shut off from this checkout and from the person's environment."""

from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from nemo_gym import global_config
from nemo_gym.config import roots
from nemo_gym.global_config import GlobalConfigDictParser, GlobalConfigDictParserConfig


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder; the install root beside it is empty too."""
    folder, install_root = tmp_path / "project", tmp_path / "install"
    folder.mkdir()
    install_root.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(roots, "PARENT_DIR", install_root)
    monkeypatch.setattr(global_config, "_GLOBAL_CONFIG_DICT", None)
    for name in (
        "NEMO_GYM_EXTRA_ROOTS",
        "NEMO_GYM_ALLOW_UNSUPPORTED_PAIRING",
        "NEMO_GYM_CONFIG_DICT",
        "NEMO_GYM_CONFIG_FILE",
        "NEMO_GYM_RUN_DIR",
        "UV_LOCK_TIMEOUT",
    ):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("UV_CACHE_DIR", "unset by the test")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield folder


@pytest.fixture
def write(project: Path) -> Callable[[str, str], Path]:
    """Writes a file of the project."""

    def write(name: str, text: str) -> Path:
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
        return path

    return write


@pytest.fixture
def command_line(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets the overrides on the command line."""

    def set_overrides(*overrides: str) -> None:
        monkeypatch.setattr("sys.argv", ["gym", *overrides])

    return set_overrides


def parsed(*overrides: str, **options: Any) -> DictConfig:
    """The config composed offline from these overrides and the project's files."""
    return parser_and_config(*overrides, **options)[1]


def parser_and_config(*overrides: str, **options: Any) -> tuple[GlobalConfigDictParser, DictConfig]:
    """The same with the parser, which knows where values came from."""
    parser = GlobalConfigDictParser()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["gym", *overrides])
        return parser, parser.parse(GlobalConfigDictParserConfig(**{"offline": True, **options}))


def plain(config: DictConfig) -> dict[str, Any]:
    """A config as plain data, `${…}` as written."""
    container = OmegaConf.to_container(config, resolve=False)
    assert isinstance(container, dict)
    return {str(key): value for key, value in container.items()}


def resources(name: str = "tiny", **fields: Any) -> dict[str, Any]:
    """An entry for a resources server."""
    return {"resources_servers": {name: {"entrypoint": "app.py", "domain": "math", **fields}}}


def agent(kind: str = "simple_agent", *, serves: str | None = "tiny_env", **fields: Any) -> dict[str, Any]:
    """An entry for an agent that uses a resources server and the policy model."""
    bound = {"resources_server": {"type": "resources_servers", "name": serves}} if serves else {}
    model = {"model_server": {"type": "responses_api_models", "name": "policy_model"}}
    return {"responses_api_agents": {kind: {"entrypoint": "app.py", **bound, **model, **fields}}}


def model(kind: str = "openai_model", **fields: Any) -> dict[str, Any]:
    """An entry for a model server."""
    return {"responses_api_models": {kind: {"entrypoint": "app.py", **fields}}}


def composed(config: dict[str, Any], **options: Any) -> DictConfig:
    """The config composed offline from a dict only."""
    wanted = GlobalConfigDictParserConfig(
        initial_global_config_dict=OmegaConf.create(config),
        skip_load_from_cli=True,
        skip_load_from_dotenv=True,
        **{"offline": True, **options},
    )
    return GlobalConfigDictParser().parse(wanted)
