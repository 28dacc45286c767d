"""Which trackers are open, and that none of them ever ends a run."""

import os
import sys
from typing import Any

import pytest
from omegaconf import OmegaConf

from nemo_gym.exporters import (
    export_metrics,
    export_rollouts,
    get_exporters,
    setup_exporters,
    teardown_exporters,
)
from nemo_gym.global_config import GlobalConfigDictParser, GlobalConfigDictParserConfig
from tests.unit.exporters.conftest import DIARY, Diary

Capture = pytest.CaptureFixture[str]
WANDB = {"wandb_project": "p", "wandb_name": "n", "wandb_api_key": "w-secret"}


def names() -> list[str]:
    return [exporter.name for exporter in get_exporters()]


def test_only_what_a_config_is_complete_for_is_opened(capsys: Capture) -> None:
    setup_exporters({})
    assert get_exporters() == [] and capsys.readouterr().err == ""
    setup_exporters(OmegaConf.create(DIARY))
    assert names() == ["diary"]


@pytest.mark.parametrize("key", ["", "****", None, "${oc.env:NOT_SET_ANYWHERE}"])
def test_a_credential_that_is_none_leaves_a_tracker_closed_with_a_word(key: Any, capsys: Capture) -> None:
    setup_exporters(OmegaConf.create({**DIARY, "diary_key": key}))
    assert get_exporters() == []
    assert "diary: nothing is sent there, since diary_name is set but diary_key is not." in capsys.readouterr().err


def test_credentials_alone_are_no_mistake(capsys: Capture) -> None:
    setup_exporters({"diary_key": "k", "mlflow_tracking_uri": "http://gitlab/api", "mlflow_tracking_token": "t"})
    assert get_exporters() == [] and capsys.readouterr().err == ""


def test_opening_again_closes_what_was_open() -> None:
    setup_exporters(DIARY)
    first = Diary.last
    setup_exporters(DIARY)
    assert first.closed == 1 and get_exporters() == [Diary.last] != [first]
    teardown_exporters()
    assert Diary.last.closed == 1 and get_exporters() == []
    teardown_exporters()
    assert Diary.last.closed == 1


def test_the_list_of_open_trackers_is_ones_own() -> None:
    setup_exporters(DIARY)
    get_exporters().clear()
    assert names() == ["diary"]


def test_the_config_is_sent_with_secrets_masked_by_name_and_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "from-the-environment")
    config = {
        **DIARY,
        "model": {"api_key": "${oc.env:A_KEY}", "note": "as in from-the-environment", "max_tokens": 3},
        "gone": "${nothing}",
    }
    setup_exporters(OmegaConf.create(config))
    assert Diary.last.config == {
        "diary_name": "run 1",
        "diary_key": "****",
        "model": {"api_key": "****", "note": "as in ****", "max_tokens": 3},
        "gone": "${nothing}",
    }
    assert Diary.last.given["diary_key"] == "d1ary-secret"


def test_metrics_and_records_reach_every_tracker() -> None:
    setup_exporters(DIARY)
    export_metrics({"a": 1.0}, step=3)
    export_metrics({})
    export_rollouts([{"reward": 1}])
    assert Diary.last.metrics == [({"a": 1.0}, 3)] and Diary.last.rollouts == [{"reward": 1}]


def test_a_tracker_that_fails_is_a_warning_of_each_kind_once(diary: type[Diary], capsys: Capture) -> None:
    diary.fails = True
    setup_exporters(DIARY)
    export_metrics({"a": 1})
    export_metrics({"a": 2})
    export_rollouts([{}])
    teardown_exporters()
    told = capsys.readouterr().err.splitlines()
    assert [line.partition(" could")[0] for line in told] == [
        "Warning: diary: the config",
        "Warning: diary: metrics",
        "Warning: diary: rollouts",
        "Warning: diary: the end of the run",
    ]
    assert told[0].endswith("(ConnectionError: nobody there). The run goes on.")


def test_a_tracker_that_cannot_be_opened_is_left_out_and_its_key_is_not_told(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def refuse(self: Diary, config: Any) -> None:
        raise PermissionError(f"{config['diary_key']} is no key of ours")

    monkeypatch.setattr(Diary, "setup", refuse)
    setup_exporters(DIARY)
    assert get_exporters() == []
    assert capsys.readouterr().err == (
        "Warning: diary: nothing is sent there: PermissionError: **** is no key of ours.\n"
    )


@pytest.mark.parametrize(
    ("module", "config", "package"),
    [
        ("wandb", WANDB, "wandb"),
        (
            "mlflow.entities",
            {"mlflow_tracking_uri": "http://x", "mlflow_experiment_name": "e", "mlflow_run_name": "r"},
            "mlflow-skinny",
        ),
    ],
)
def test_without_its_library_one_sentence_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, module: str, config: dict[str, str], package: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    setup_exporters(config)
    told = capsys.readouterr().err
    assert get_exporters() == [] and told.count("\n") == 1
    assert f"the package `{package}` can't be imported" in told and "uv pip install 'nemo-gym[exporters]'" in told


def test_nothing_is_imported_for_a_config_that_names_no_tracker() -> None:
    before = set(sys.modules)
    setup_exporters({"policy_model_name": "m"})
    assert not {"wandb", "mlflow"} & (set(sys.modules) - before)


def test_a_forked_child_leaves_the_parents_trackers_alone() -> None:
    setup_exporters(DIARY)
    child = os.fork()
    if child == 0:
        teardown_exporters()
        os._exit(Diary.last.closed + len(get_exporters()))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert names() == ["diary"]


@pytest.mark.parametrize(
    ("options", "opened"),
    [({}, ["diary"]), ({"offline": True}, []), ({"skip_exporters": True}, []), ({"hide_secrets": True}, [])],
)
def test_composing_opens_trackers_last_unless_told_otherwise(
    options: dict[str, bool], opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", "restored after the test")
    monkeypatch.setenv("UV_LOCK_TIMEOUT", "5")
    wanted = GlobalConfigDictParserConfig(
        initial_global_config_dict=OmegaConf.create(DIARY),
        skip_load_from_cli=True,
        skip_load_from_dotenv=True,
        **options,
    )
    GlobalConfigDictParser().parse(wanted)
    assert names() == opened
