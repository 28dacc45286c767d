"""B107: names in rows and configs are names; none of them leads a file out of its folder."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.base_responses_api_model import (
    clear_model_call_captures_for_rollouts,
    merge_model_call_capture_into_record,
)
from nemo_gym.capture.store import CaptureStore
from nemo_gym.config.errors import ConfigError
from nemo_gym.config.roots import server_directory
from nemo_gym.launch.run_directory import RunDirectory
from nemo_gym.rollouts.outputs import dated_output
from nemo_gym.rollouts.skills import SkillsError, load_skill_directory, stage_skills
from nemo_gym.server_utils import SimpleServer
from tests.security.kinds import served
from tests.unit.serve.toys import toy_resources

OUT = ("..", "../x", "../../x", "a/../../x", "/tmp/x", "./../x", "a/b")


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize("name", OUT)
def test_names_of_servers_make_files_in_the_folder_of_logs(name: str, tmp_path: Path) -> None:
    log = RunDirectory(tmp_path).log_file(name)
    assert log.parent == tmp_path / "logs" and log.resolve().parent == (tmp_path / "logs").resolve()


@pytest.mark.parametrize("name", OUT)
def test_names_of_agents_make_files_in_the_folder_of_results(name: str, tmp_path: Path) -> None:
    assert dated_output(tmp_path, name, datetime(2026, 1, 1)).parent == tmp_path


@pytest.mark.parametrize("implementation", ["..", "../x", "../../x", "mcqa/../../x", "/tmp"])
def test_a_server_lies_below_the_folder_of_its_type(implementation: str) -> None:
    """Its environment, with `uv_venv_dir` too, is made at the same place below another folder."""
    with pytest.raises(ConfigError, match="no name of a server's folder"):
        server_directory("resources_servers", implementation)


@pytest.mark.parametrize("name", ["..", "../x", "/tmp/x"])
def test_profiles_stay_in_their_folder(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from fastapi import FastAPI

    from nemo_gym import server_utils
    from nemo_gym.serve.profiler import Profiler, ProfilingMiddlewareConfig

    made: list[Profiler] = []
    monkeypatch.setattr(server_utils, "WORKING_DIR", tmp_path)
    monkeypatch.setattr(server_utils, "profile_app", lambda app, profiler: made.append(profiler))
    settings = ProfilingMiddlewareConfig(profiling_enabled=True, profiling_results_dirpath="profiles")
    SimpleServer.setup_profiling(toy_resources(name=name), FastAPI(), settings)
    (profiler,) = made
    stem = (profiler.base_profile_dir / f"{profiler.name}.log").resolve()
    assert stem.parent.parent == (tmp_path / "profiles").resolve()


IDS = ("../x", "../../etc/passwd", "/etc/passwd", "..", ".hidden", "a/b", "a\0b", "x" * 300)


@pytest.mark.parametrize("rollout_id", IDS)
def test_rows_can_not_name_files_of_captures(rollout_id: str, tmp_path: Path) -> None:
    folder = tmp_path / "captures"
    folder.mkdir()
    row: dict[str, Any] = {"_ng_rollout_id": rollout_id}
    with pytest.raises(ValueError, match="_ng_rollout_id"):
        clear_model_call_captures_for_rollouts([row], [folder])
    with pytest.raises(ValueError, match="_ng_rollout_id"):
        merge_model_call_capture_into_record(row, [folder])
    assert files_in(tmp_path) == {"captures"}


@pytest.mark.parametrize("rollout_id", ["../x", "/etc/passwd", "a/b", "a\0b"])
def test_the_store_of_captures_takes_names_only(rollout_id: str, tmp_path: Path) -> None:
    store = CaptureStore(tmp_path / "captures")
    for use in (store.mark_incomplete, store.path_for, lambda name: store.record(name, {})):
        with pytest.raises(ValueError, match="rollout"):
            use(rollout_id)
    assert files_in(tmp_path) == set()


@pytest.mark.parametrize("name", ["agent", "model", "resources"])
async def test_paths_can_not_name_files_of_captures(name: str) -> None:
    tails = {"agent": "v1/responses", "model": "v1/responses", "resources": "verify"}
    async with served(name) as (_, client):
        for rollout_id in ("%2e%2e", "..%2f..%2fx", "%2e%2e%2fx", "a%00", "a%0a", "x" * 300, "%ff", "-a"):
            reply = await client.post(f"/ng-rollout/{rollout_id}/{tails[name]}", json={"input": "hi"})
            assert reply.status_code in (400, 404), (rollout_id, reply.text)


def skills(folder: Path) -> Path:
    (folder / "skills/one").mkdir(parents=True)
    (folder / "skills/one/SKILL.md").write_text("---\nname: one\n---\n")
    return folder / "skills"


@pytest.mark.parametrize("is_folder", [True, False])
def test_skills_hold_no_way_out(is_folder: bool, tmp_path: Path) -> None:
    root, secret = skills(tmp_path), tmp_path / "secret"
    (secret.mkdir if is_folder else secret.touch)()
    (root / "one/link").symlink_to("../../secret")
    for use in (lambda: load_skill_directory(str(root)), lambda: stage_skills(str(root), tmp_path / "staged")):
        with pytest.raises(SkillsError, match="link that leads out"):
            use()
    assert not (tmp_path / "staged").exists()


def test_links_within_skills_are_fine(tmp_path: Path) -> None:
    root = skills(tmp_path)
    (root / "one/again.md").symlink_to("SKILL.md")
    assert [skill.name for skill in load_skill_directory(str(root)).skills] == ["one"]
    stage_skills(str(root), tmp_path / "staged")
    assert (tmp_path / "staged/one/again.md").read_text() == (root / "one/SKILL.md").read_text()
