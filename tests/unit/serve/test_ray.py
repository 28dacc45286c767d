from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from nemo_gym import server_utils
from nemo_gym.serve import ray_cluster
from nemo_gym.serve.ray_cluster import sources_import_ray
from nemo_gym.server_utils import initialize_ray, maybe_ray_cluster_exit
from tests.unit.serve.toys import ToyResources


class FakeRay:
    """Ray as far as joining and leaving a cluster go."""

    gcs_address = "10.0.0.1:6379"

    def __init__(self, initialized: bool = False) -> None:
        self.initialized = initialized
        self.calls: list[Any] = []

    def is_initialized(self) -> bool:
        return self.initialized

    def init(self, **options: Any) -> None:
        self.initialized = True
        self.calls.append(options)

    def get_runtime_context(self) -> FakeRay:
        return self

    def shutdown(self) -> None:
        self.calls.append("shutdown")


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> Any:
    config = OmegaConf.create({})
    OmegaConf.set_struct(config, True)
    monkeypatch.setattr(server_utils, "get_global_config_dict", lambda: config)
    monkeypatch.setattr(ray_cluster, "_started_by", None)
    return config


def use(monkeypatch: pytest.MonkeyPatch, ray: FakeRay) -> FakeRay:
    monkeypatch.setattr(server_utils, "_get_ray", lambda: ray)
    monkeypatch.setitem(__import__("sys").modules, "ray", ray)
    monkeypatch.setattr(ray_cluster.atexit, "register", lambda *_: None)  # type: ignore[attr-defined]
    return ray


def test_a_cluster_started_here_is_remembered_and_ended(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = use(monkeypatch, FakeRay())
    initialize_ray()
    initialize_ray()
    assert ray.calls == [{"address": "local", "ignore_reinit_error": True, "include_dashboard": False}]
    assert config.ray_head_node_address == FakeRay.gcs_address
    maybe_ray_cluster_exit()
    maybe_ray_cluster_exit()
    assert ray.calls[1:] == ["shutdown"]


def test_a_cluster_of_others_is_joined_and_left_alone(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = use(monkeypatch, FakeRay())
    OmegaConf.set_struct(config, False)
    config.ray_head_node_address = "auto"
    initialize_ray()
    maybe_ray_cluster_exit()
    assert ray.calls == [{"address": "auto", "ignore_reinit_error": True}]


def test_connected_processes_stay_as_they_are(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = use(monkeypatch, FakeRay(initialized=True))
    initialize_ray()
    assert ray.calls == []


SOURCES = [
    ("import ray", True),
    ("def f():\n    from ray.util import queue", True),
    ("import ray.remote as r, os", True),
    ("import array\nfrom .ray import x\ntext = 'import ray'", False),
    ("import rayon", False),
    ("this is ray no python", False),
]


@pytest.mark.parametrize(("source", "answer"), SOURCES)
def test_sources_tell_whether_ray_is_used(tmp_path: Path, source: str, answer: bool) -> None:
    (tmp_path / "app.py").write_text("x = 1")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "more.py").write_text(source)
    assert sources_import_ray(tmp_path) is answer


def test_tests_and_venvs_dont_count(tmp_path: Path) -> None:
    for folder in ("tests", ".venv"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.py").write_text("import ray")
    assert sources_import_ray(tmp_path) is False


class WithRay(ToyResources):
    ray_enabled = True


class WithoutRay(ToyResources):
    ray_enabled = False


def test_a_declaration_beats_the_sources(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[Path] = []

    def ask(folder: Path) -> bool:
        asked.append(folder)
        return True

    monkeypatch.setattr(ray_cluster, "sources_import_ray", ask)
    assert server_utils._server_uses_ray(WithRay) is True
    assert server_utils._server_uses_ray(WithoutRay) is False
    assert asked == []
    assert server_utils._server_uses_ray(ToyResources) is True
    assert asked == [Path(__file__).parent]
    assert "ToyResources imports ray" in capsys.readouterr().err
