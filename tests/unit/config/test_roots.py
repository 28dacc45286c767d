"""Where things are looked for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nemo_gym.config import roots
from nemo_gym.config.errors import ConfigError


def test_roots_in_order_each_once(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install = tmp_path / "install"
    assert roots.component_search_roots() == [project, install]
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", f"/one::{tmp_path}/other:/one")
    assert roots.component_search_roots() == [Path("/one"), tmp_path / "other", project, install]
    woven = roots.component_search_roots(sys_path=[str(install), "/lib", str(project), "/one"])
    assert woven == [Path("/one"), tmp_path / "other", Path("/lib"), project, install]
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(install))
    assert roots.component_search_roots() == [install, project]


def test_relative_paths_resolve_to_where_they_are(project: Path, tmp_path: Path) -> None:
    (tmp_path / "install" / "x").mkdir()
    (tmp_path / "install" / "x" / "f").touch()
    assert roots.resolve_under_roots("x/f") == tmp_path / "install" / "x" / "f"
    assert roots.resolve_under_roots("nowhere") == project / "nowhere"
    assert roots.resolve_under_roots("/absolute/nowhere") == Path("/absolute/nowhere")
    assert roots.resolve_under_roots("x", validator=Path.is_file) == project / "x"
    (project / "x").mkdir()
    assert roots.resolve_under_roots("x/f") == tmp_path / "install" / "x" / "f"
    assert roots.resolve_under_roots("x") == project / "x"


def test_the_folder_of_a_server_says_what_it_needs(project: Path, tmp_path: Path) -> None:
    mine, shipped = project / "resources_servers" / "mcqa", tmp_path / "install" / "resources_servers" / "mcqa"
    for folder in (mine, shipped):
        folder.mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"neither requirements\.txt nor pyproject\.toml"):
        roots.server_directory("resources_servers", "mcqa")
    (shipped / "pyproject.toml").touch()
    assert roots.server_directory("resources_servers", "mcqa") == shipped
    (mine / "requirements.txt").touch()
    assert roots.server_directory("resources_servers", "mcqa") == mine
    with pytest.raises(ConfigError, match=r"no server `resources_servers/mqca`\. Did you mean `mcqa`"):
        roots.server_directory("resources_servers", "mqca")


def test_importable_in_order_and_idempotent(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(tmp_path / "extra"))
    monkeypatch.setattr(sys, "path", [str(project), "/lib", str(tmp_path / "install"), str(tmp_path / "extra")])
    roots.augment_sys_path()
    expected = [str(tmp_path / "extra"), "/lib", str(project), str(tmp_path / "install")]
    assert sys.path == expected
    roots.augment_sys_path()
    assert sys.path == expected


CHECK = """
import os, sys
os.environ.pop("HF_HOME", None)
os.environ["HF_DATASETS_CACHE"] = "mine"
import nemo_gym
heavy = {"pydantic", "fastapi", "omegaconf", "openai", "ray", "hydra", "numpy", "yaml"} & set(sys.modules)
assert not heavy, heavy
assert os.environ["TOKENIZERS_PARALLELISM"] == "false"
assert os.environ["HF_HOME"] == str(nemo_gym.CACHE_DIR / "huggingface")
assert os.environ["HF_DATASETS_CACHE"] == "mine"
assert sys.path[-1] == str(nemo_gym.PARENT_DIR)
assert nemo_gym.ROOT_DIR.name == "nemo_gym" and nemo_gym.PARENT_DIR == nemo_gym.ROOT_DIR.parent
import builtins
assert builtins.print.keywords == {"flush": True}
import nemo_gym.global_config
heavy = {"fastapi", "openai", "ray", "hydra", "numpy"} & set(sys.modules)
assert not heavy, heavy
"""


def test_importing_the_package_is_light_and_prepares_the_process(tmp_path: Path) -> None:
    result = subprocess.run([sys.executable, "-c", CHECK], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_public_names_are_listed_and_others_are_refused() -> None:
    import nemo_gym

    assert nemo_gym.Domain.MATH.value == "math"
    assert {"SimpleResourcesServer", "Domain", "ROOT_DIR", "__version__"} <= set(dir(nemo_gym))
    assert len(nemo_gym.__all__) == len(set(nemo_gym.__all__))
    assert {"SimpleResourcesServer", "component_search_roots", "__version__"} <= set(nemo_gym.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Nope'"):
        _ = nemo_gym.Nope
    assert nemo_gym._resolve_under_cwd_or_install("/x") == Path("/x")
    assert nemo_gym.NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME == "NEMO_GYM_EXTRA_ROOTS"


def test_other_folders_are_searched_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", "/set")
    with roots.also_searched(first=[tmp_path], last=["/last"]):
        assert os.environ["NEMO_GYM_EXTRA_ROOTS"].split(os.pathsep) == [str(tmp_path), "/set", "/last"]
    assert os.environ["NEMO_GYM_EXTRA_ROOTS"] == "/set"
    monkeypatch.delenv("NEMO_GYM_EXTRA_ROOTS")
    with pytest.raises(KeyError), roots.also_searched(last=[tmp_path]):
        assert os.environ["NEMO_GYM_EXTRA_ROOTS"] == str(tmp_path)
        raise KeyError
    assert "NEMO_GYM_EXTRA_ROOTS" not in os.environ
