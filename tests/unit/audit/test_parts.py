"""Parts of an audit by themselves: whom it means, what it takes for a reward, and what it leaves behind."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from nemo_gym.audit.errors import AuditError
from nemo_gym.audit.models import ModelApp
from nemo_gym.audit.progress import DESCRIPTOR_ENV
from nemo_gym.audit.running import Run
from nemo_gym.audit.stage import Stage, agents_for, importable, staged
from nemo_gym.audit.statement import Audit
from nemo_gym.audit.subject import Subject, subjects
from nemo_gym.audit.tricks import tricks_of
from nemo_gym.config.roots import NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME
from nemo_gym.serve import local
from nemo_gym.testing.replies import call

RESOURCES = {"resources_servers": {"quiz": {"entrypoint": "app.py", "domain": "other"}}}
AGENT = {"responses_api_agents": {"simple_agent": {"entrypoint": "app.py"}}}
DECLARING = {"responses_api_agents": {"simple_agent": {"entrypoint": "app.py", "datasets": [{"name": "x"}]}}}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A component `quiz` with a whole config, another one, and one that is only a part."""
    monkeypatch.setenv(NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME, str(tmp_path))
    folder = tmp_path / "resources_servers/quiz"
    (folder / "configs").mkdir(parents=True)
    (folder / "app.py").touch()
    for name, config in (("quiz", {"q": RESOURCES, "a": AGENT}), ("hard", {"a": AGENT}), ("part", {"q": RESOURCES})):
        (folder / "configs" / f"{name}.yaml").write_text(yaml.safe_dump(config))
    return folder


def test_a_name_means_whole_configs_and_a_flavour_any(folder: Path) -> None:
    assert sorted(subject.flavor for subject in subjects("quiz")) == ["hard", "quiz"]
    assert [subject.flavor for subject in subjects("quiz/part")] == ["part"]
    with pytest.raises(AuditError, match="no resources server or environment `quiz/none`"):
        subjects("quiz/none")


def test_a_statement_may_be_one_for_each_config(folder: Path) -> None:
    (folder / "audit.py").write_text(
        "from nemo_gym.audit import Audit\nAUDIT = {'quiz': Audit(rows=1), 'hard': Audit(rows=2)}\n"
    )
    for flavor, rows in (("quiz", 1), ("hard", 2)):
        said = Subject(folder / f"configs/{flavor}.yaml", folder).statement()
        assert said is not None and said.rows == rows


def test_scores_may_depend_on_the_row() -> None:
    row = {"least": 0.25}
    by_row = Audit(full=lambda row: row["least"] * 2, low=lambda row: row["least"])
    assert (by_row.full_for(row), by_row.low_for(row)) == (0.5, 0.25)
    assert (Audit(low=-1.0).full_for(row), Audit(low=-1.0).low_for(row)) == (1.0, -1.0)


@pytest.mark.parametrize(
    ("record", "reward", "error"),
    [
        ({"reward": 1}, 1.0, ""),
        ({"reward": 1.0, "mask_sample": True}, None, ""),
        ({"reward": True}, None, "True, which is no reward"),
        ({"reward": float("inf")}, None, "inf, which is no reward"),
        ({}, None, "None, which is no reward"),
        ([], None, "None, which is no reward"),
    ],
)
def test_what_a_rollout_was_rewarded_with(record: Any, reward: float | None, error: str) -> None:
    run: Any = SimpleNamespace(stage=SimpleNamespace(served={"/verify": 1}))
    outcome = Run._outcome(run, record)
    assert (outcome.reward, outcome.error, outcome.reached) == (reward, error, ())


def test_agents_that_declare_data_sets_come_first() -> None:
    config = OmegaConf.create({"first": AGENT, "second": DECLARING})
    assert [name for name, _ in agents_for(config)] == ["second", "first"]


def test_imports_find_the_components_files_first_and_only_meanwhile(tmp_path: Path) -> None:
    before = list(sys.path)
    with importable(tmp_path):
        assert sys.path == [str(tmp_path), *before]
    assert sys.path == before


def test_servers_of_a_stage_are_gone_with_it() -> None:
    config = staged(OmegaConf.create({}))
    model = ModelApp(lambda body: None)
    stage = Stage(config, model, model)
    known: dict[str, local.LocalServer] = {}

    async def opened() -> None:
        async with stage.open():
            known.update(local._servers)

    before = dict(local._servers)
    asyncio.run(opened())
    assert set(known) - set(before) == {"policy_model", "audit_judge"}
    assert local._servers == before


@pytest.mark.parametrize("wrong", [(call("look"), "no"), [(call("first"),), (call("look"), "no")]])
def test_tricks_come_at_the_end_of_the_environments_own_wrong_answer(wrong: Any) -> None:
    tricks = {trick.name: trick for trick in tricks_of(Audit(wrong=lambda row: wrong), ())}
    (replies,) = tricks["verdict as data"].replies({})
    items: Any = replies[-1] if isinstance(replies, list) else replies
    assert [item.get("name", item["type"]) for item in items[:-1]] == ["look", "message"]
    assert '"reward": 1.0' in items[-1]


def test_a_watched_program_ends_at_an_interrupt_and_keeps_its_pipe_to_itself() -> None:
    code = (
        "import os, signal; from nemo_gym.audit import progress; progress.begin(); progress.tell(n=1); "
        "print(signal.getsignal(signal.SIGINT) is signal.SIG_DFL, os.get_inheritable(progress._descriptor), "
        "progress.DESCRIPTOR_ENV in os.environ)"
    )
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as told:
        ended = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, DESCRIPTOR_ENV: str(writing)},
            pass_fds=[writing],
            capture_output=True,
            text=True,
            check=True,
        )
        os.close(writing)
        assert ended.stdout == "True False False\n"
        assert told.read() == b'{"n": 1}\n'
