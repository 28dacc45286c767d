"""Benchmarks: what a config of one says, and which there are."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

from nemo_gym.benchmarks import BenchmarkConfig, discover_benchmarks
from nemo_gym.config.errors import ConfigError

MODEL = {"type": "responses_api_models", "name": "policy_model"}
RESOURCES = {"type": "resources_servers", "name": "math"}


def dataset(name: str = "rows", **fields: object) -> dict[str, object]:
    paths = {"jsonl_fpath": f"data/{name}.jsonl", "prepare_script": "prepare.py"}
    return {"name": name, "type": "benchmark", **paths, "num_repeats": 3, **fields}


def config(*datasets: dict[str, object]) -> dict[str, object]:
    agent = {"entrypoint": "app.py", "resources_server": RESOURCES, "model_server": MODEL, "datasets": list(datasets)}
    return {
        "math": {"resources_servers": {"math": {"entrypoint": "app.py", "domain": "math"}}},
        "math_simple_agent": {"responses_api_agents": {"simple_agent": agent}},
    }


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(root: Path, name: str, content: object) -> Path:
    path = root / "benchmarks" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    return path


def test_a_config_is_described(root: Path) -> None:
    path = write(root, "aime/config.yaml", config(dataset()))
    benchmark = BenchmarkConfig.from_config_path(path)
    assert benchmark is not None
    assert (benchmark.name, benchmark.path, benchmark.num_repeats) == ("aime", path, 3)
    assert benchmark.agent_name == "math_simple_agent"
    assert benchmark.environment_server == "math_environment_server"
    assert benchmark.dataset.name == "rows"


def test_a_config_without_a_place_is_called_by_its_folder(tmp_path: Path) -> None:
    benchmark = BenchmarkConfig.from_initial_config_dict(
        tmp_path / "mine" / "config.yaml", OmegaConf.create(config(dataset()))
    )
    assert benchmark is not None
    assert benchmark.name == "mine"


@pytest.mark.parametrize(
    ("datasets", "message"), [([], "no data set of type"), ([dataset("a"), dataset("b")], r"suite.*\(a, b\)")]
)
def test_a_config_declares_exactly_one_benchmark(root: Path, datasets: list[dict[str, object]], message: str) -> None:
    path = write(root, "suite/config.yaml", config(*datasets))
    with pytest.raises(ConfigError, match=message):
        BenchmarkConfig.from_config_path(path)
    with pytest.warns(UserWarning, match=message):
        assert BenchmarkConfig.from_config_path(path, strict=False) is None


def test_a_data_set_with_a_script_stands_in_for_a_benchmark(root: Path) -> None:
    path = write(root, "old/config.yaml", config(dataset(type="validation", license="MIT")))
    benchmark = BenchmarkConfig.from_config_path(path)
    assert benchmark is not None
    assert benchmark.dataset.type == "validation"


def test_benchmarks_are_found_and_broken_ones_warned_of(root: Path) -> None:
    write(root, "b/config.yaml", config(dataset()))
    write(root, "a/flavor.yaml", config(dataset()))
    write(root, "b/manifest.yaml", config(dataset()))
    write(root, "suite/config.yaml", config(dataset("a"), dataset("b")))
    write(root, "broken/config.yaml", config(dataset(agent="nobody")))
    with pytest.warns(UserWarning, match="broken/config.yaml is left out: .*nobody"):
        found = discover_benchmarks()
    assert [name for name in found if name in ("a/flavor", "b", "suite", "broken")] == ["a/flavor", "b"]
    assert found["b"].name == "b"
