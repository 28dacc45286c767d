"""What is started, and whether as a fork."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from nemo_gym.config.errors import ConfigError
from nemo_gym.config.instances import server_instances
from nemo_gym.launch.environment import Handover, changes, server_environment, why_no_fork
from nemo_gym.launch.interpreter import this_installation
from nemo_gym.launch.plan import ServerPlan, Start, how_to_start, plan_servers
from nemo_gym.launch.preload import PreloadFacts
from nemo_gym.launch.venvs import Venv
from tests.unit.launch import toys

FACTS = PreloadFacts(frozenset({"pydantic", "yaml"}), frozenset({"python_multipart"}))


@pytest.fixture
def plan(root: Path) -> ServerPlan:
    toys.add_component(root, "alpha")
    [planned] = plan_servers(server_instances(toys.config_for(root, "alpha")))
    return planned


def overlay(*modules: str) -> Venv:
    return Venv(Path("/v"), "ours", Path("/v/bin/python"), Path("/v/lib"), frozenset(modules))


def test_an_overlay_of_the_base_is_forked(plan: ServerPlan) -> None:
    assert how_to_start(plan, overlay("sympy"), FACTS, None) == Start("fork")


@pytest.mark.parametrize(
    ("venv", "facts", "obstacle", "reason"),
    [
        (overlay("pydantic", "x"), FACTS, None, "its venv has its own pydantic"),
        (overlay("python_multipart"), FACTS, None, "its venv has its own python_multipart"),
        (replace(overlay(), kind="foreign"), FACTS, None, "its venv was built elsewhere"),
        (overlay(), replace(FACTS, problem="preloading started a thread"), None, "preloading started a thread"),
        (overlay(), FACTS, "TZ differs from the fork server's", "TZ differs from the fork server's"),
    ],
)
def test_what_forbids_a_fork(
    plan: ServerPlan, venv: Venv, facts: PreloadFacts, obstacle: str | None, reason: str
) -> None:
    assert how_to_start(plan, venv, facts, obstacle) == Start("exec", reason)


def test_ray_forbids_a_fork(plan: ServerPlan) -> None:
    assert how_to_start(replace(plan, needs_ray=True), overlay(), FACTS, None) == Start("exec", "it uses Ray")


def test_an_entrypoint_is_a_file_of_its_component(root: Path) -> None:
    toys.add_component(root, "alpha")
    config = toys.config_for(root, "alpha")
    config.alpha.resources_servers.alpha.entrypoint = "/abs/app.py"
    with pytest.raises(ConfigError, match=r"alpha\.entrypoint is /abs/app\.py: it must be a path within"):
        plan_servers(server_instances(config))
    config.alpha.resources_servers.alpha.entrypoint = "other.py"
    with pytest.raises(ConfigError, match=r"alpha\.entrypoint names .*other\.py, which isn't there"):
        plan_servers(server_instances(config))


def test_a_servers_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEMO_GYM_CONFIG_DICT", "stale: true")
    monkeypatch.setenv("KEPT", "yes")
    monkeypatch.setenv("PYTHONPATH", "/mine")
    monkeypatch.setenv("PATH", "/v/bin:/usr/bin")
    handover = Handover(tmp_path / "config.json", tmp_path, {"UV_CACHE_DIR": "/cache"})
    environment = server_environment("alpha", tmp_path / "c", overlay(), handover)
    assert environment["KEPT"] == "yes"
    assert environment["UV_CACHE_DIR"] == "/cache"
    assert environment["PATH"] == "/v/bin:/usr/bin"
    assert environment["VIRTUAL_ENV"] == "/v"
    assert environment["PYTHONPATH"].split(os.pathsep)[0] == str(tmp_path / "c")
    assert environment["PYTHONPATH"].split(os.pathsep)[-1] == "/mine"
    assert environment["NEMO_GYM_CONFIG_FILE"] == str(tmp_path / "config.json")
    assert environment["NEMO_GYM_CONFIG_PATH"] == "alpha"
    assert environment["NEMO_GYM_RUN_DIR"] == str(tmp_path)
    assert "NEMO_GYM_CONFIG_DICT" not in environment


def test_what_changes_between_environments() -> None:
    current = {"SAME": "1", "OLD": "1", "GONE": "1", "MARK_1": "1"}
    assert changes(current, {"SAME": "1", "OLD": "2", "NEW": "3"}, "MARK_") == ({"OLD": "2", "NEW": "3"}, ["GONE"])


@pytest.mark.parametrize("name", ["PYTHONHASHSEED", "LD_PRELOAD", "SSL_CERT_FILE", "TZ"])
def test_variables_that_are_read_only_once_forbid_a_fork(name: str) -> None:
    assert why_no_fork({name: "x"}, []) == f"{name} differs from the fork server's"
    assert why_no_fork({}, [name]) == f"{name} differs from the fork server's"


def test_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONBREAKPOINT", "ray.util.rpdb.set_trace")  # in every Ray actor
    monkeypatch.setattr(sys, "gettrace", lambda: None)
    assert why_no_fork({"PYTHONPATH": "x", "PYTHONBREAKPOINT": "x", "PATH": "y"}, ["Z"]) is None
    monkeypatch.setenv("COVERAGE_PROCESS_START", "x")
    assert why_no_fork({}, []) == "something traces or profiles"


def test_the_base_is_what_runs_us() -> None:
    base = this_installation()
    assert base.executable == Path(sys.executable)
    assert base.home_executable.exists()
    assert any((folder / "pydantic").exists() for folder in base.site_directories)
