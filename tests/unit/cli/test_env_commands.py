"""`gym env` as far as it starts no server: composing, checking, describing, and one server's own venv."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from tests.unit.cli.conftest import Gym

CONFIG = """
quiz:
  resources_servers: {quiz: {entrypoint: app.py, domain: other}}
quiz_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: quiz}
      model_server: {type: responses_api_models, name: policy_model}
"""
TASK_DATA = """
from pydantic import BaseModel

class TaskData(BaseModel):
    question: str
"""


@pytest.fixture
def quiz(gym: Gym, tmp_path: Path) -> Path:
    """A resources server `quiz` in the current folder."""
    folder = tmp_path / "resources_servers/quiz"
    (folder / "configs").mkdir(parents=True)
    (folder / "configs/quiz.yaml").write_text(CONFIG)
    (folder / "requirements.txt").write_text("-e nemo-gym[dev] @ ../../\n")
    (folder / "app.py").write_text("ANSWER = 42\n")
    (folder / "task_data.py").write_text(TASK_DATA)
    (folder / "tests").mkdir()
    (folder / "tests/test_app.py").write_text("import app\n\nasync def test_answer():\n    assert app.ANSWER == 42\n")
    return folder


MODEL = (
    "--model-type",
    "openai_model",
    "--model-url",
    "http://u:pw@m/v1",
    "--model",
    "m",
    "--model-api-key",
    "key-123",
)


def test_resolve_prints_the_config_without_secrets(gym: Gym, quiz: Path) -> None:
    ended = gym("env", "resolve", "--resources-server", "quiz", *MODEL, "+copy=${policy_api_key}")
    assert ended.code == 0, ended.err
    config = yaml.safe_load(ended.out)
    model = config["policy_model"]["responses_api_models"]["openai_model"]
    assert model["openai_model"] == "m"
    assert config["policy_api_key"] == model["openai_api_key"] == "****"
    assert "key-123" not in ended.out and "u:pw" not in ended.out
    assert config["head_server"]["port"] == 11000 and "head_server_deps" in config


def test_resolve_needs_a_model_where_servers_call_one(gym: Gym, quiz: Path) -> None:
    ended = gym("env", "resolve", "--resources-server", "quiz")
    assert ended.code == 1 and "policy_model" in ended.err and "--model-type" in ended.err


def test_validate_warns_of_a_missing_model_and_is_strict_on_request(gym: Gym, quiz: Path) -> None:
    full = gym("env", "validate", "--resources-server", "quiz", *MODEL)
    assert (full.code, full.out, full.err) == (0, "✓ Config is valid.\n", "")
    lenient = gym("env", "validate", "--resources-server", "quiz")
    assert (lenient.code, lenient.out) == (0, "✓ Config is valid.\n") and "policy_model" in lenient.err
    strict = gym("env", "validate", "--resources-server", "quiz", "--strict")
    assert strict.code == 1 and "policy_model" in strict.err and strict.out == ""


def test_validate_reports_what_no_stand_in_mends(gym: Gym, quiz: Path) -> None:
    broken = CONFIG.replace("name: quiz}", "name: quizz}")
    (quiz / "configs/quiz.yaml").write_text(broken)
    ended = gym("env", "validate", "--resources-server", "quiz")
    assert ended.code == 1 and "quizz" in ended.err and ended.out == ""


def test_validate_refuses_what_is_for_catalog_entries(gym: Gym, quiz: Path) -> None:
    ended = gym("env", "validate", "--resources-server", "quiz", *MODEL, "--json")
    assert ended.code == 1 and "json" in ended.err


def test_schema_prints_the_rows_schema(gym: Gym, quiz: Path) -> None:
    ended = gym("env", "schema", "--resources-server", "quiz")
    assert json.loads(ended.out)["properties"]["question"]["type"] == "string"
    (quiz / "task_data.py").unlink()
    absent = gym("env", "schema", "--resources-server", "quiz")
    assert absent.code == 1 and "task_data.py" in absent.err


def test_a_search_dir_comes_before_the_current_folder(gym: Gym, quiz: Path, tmp_path: Path) -> None:
    shutil.copytree(tmp_path / "resources_servers", tmp_path / "mine/resources_servers")
    own = tmp_path / "mine/resources_servers/quiz/task_data.py"
    own.write_text(TASK_DATA.replace("question", "riddle"))
    asked = ("env", "schema", "--resources-server", "quiz")
    assert "riddle" in json.loads(gym(*asked, "--search-dir", "mine").out)["properties"]
    assert "question" in json.loads(gym(*asked).out)["properties"]
    chosen = gym("env", "validate", "--resources-server", "quiz", *MODEL, "--search-dir", "mine")
    assert chosen.code == 0 and "hides" in chosen.err


@pytest.mark.parametrize(
    "entrypoint", ["quiz", "resources_servers/quiz/flavor", "environments/quiz", "resources_servers/"]
)
def test_an_entrypoint_must_name_a_server_folder(gym: Gym, quiz: Path, entrypoint: str) -> None:
    ended = gym("env", "schema", f"+entrypoint={entrypoint}")
    assert ended.code == 1 and f"{entrypoint!r} names no server folder" in ended.err


def test_tests_run_in_the_servers_own_venv_and_folder(
    gym: Gym, quiz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GYM_CI_JUNIT_DIR", str(tmp_path / "junit"))
    venvs = f"+uv_venv_dir={tmp_path / 'venvs'}"
    passed = gym("env", "test", "--resources-server", "quiz", venvs)
    assert passed.code == 0, passed.out
    assert (tmp_path / "venvs/resources_servers/quiz/.venv/bin/python").exists()
    report = (tmp_path / "junit/resources_servers__quiz.xml").read_text()
    assert 'classname="resources_servers.quiz' in report
    # Of another length: bytecode of the same second and size would be taken for this file's.
    (quiz / "app.py").write_text("ANSWER = 40 + 1\n")
    failed = gym("env", "test", "+entrypoint=resources_servers/quiz", venvs)
    assert failed.code == 1 and f"cd {quiz}" in failed.out


def test_example_data_is_checked_on_request(gym: Gym, quiz: Path, tmp_path: Path) -> None:
    venvs = f"+uv_venv_dir={tmp_path / 'venvs'}"
    ended = gym("env", "test", "--resources-server", "quiz", venvs, "+should_validate_data=true")
    assert ended.code == 1 and ended.err.count("Error: ") == 3


def test_packages_are_those_of_the_venv_and_of_what_it_extends(gym: Gym, quiz: Path, tmp_path: Path) -> None:
    venvs = f"+uv_venv_dir={tmp_path / 'venvs'}"
    unbuilt = gym("env", "packages", "--resources-server", "quiz", venvs)
    assert unbuilt.code == 1 and "does not exist yet" in unbuilt.err
    assert gym("env", "test", "--resources-server", "quiz", venvs).code == 0
    listed = gym("env", "packages", "--resources-server", "quiz", venvs, "--json")
    names = {row["name"] for row in json.loads(listed.out)}
    assert {"nemo-gym", "fastapi"} <= names and listed.err == ""
    shown = gym("env", "packages", "--resources-server", "quiz", venvs).out.splitlines()
    assert shown[0] == "Packages of resources_servers/quiz" and shown[2].startswith("---")
    frozen = gym("env", "packages", "--resources-server", "quiz", venvs, "+format=freeze").out
    assert any(line.startswith("fastapi==") for line in frozen.splitlines())
