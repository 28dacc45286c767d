"""What Weights & Biases and MLflow are sent, and how names are made to fit."""

import json
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from nemo_gym.exporters import export_metrics, export_rollouts, setup_exporters, teardown_exporters
from nemo_gym.exporters.mlflow_names import accepted_name, flattened
from tests.unit.exporters.conftest import FakeClient

MLFLOW = {
    "mlflow_tracking_uri": "http://mlflow:5000",
    "mlflow_experiment_name": "exp",
    "mlflow_run_name": "run",
    "mlflow_tracking_token": "ml-secret-token",
}


@pytest.fixture
def wandb_run(wandb: Any, tmp_path: Path) -> Any:
    setup_exporters(
        {"wandb_project": "p", "wandb_name": "n", "wandb_api_key": "w-secret", "results_dir": str(tmp_path / "r")}
    )
    return wandb.runs[-1]


def test_a_wandb_run_keeps_its_files_with_the_results_and_sends_nothing_unasked(
    wandb_run: Any, wandb: ModuleType, tmp_path: Path
) -> None:
    arguments = wandb_run.arguments
    settings = vars(arguments.pop("settings"))
    assert arguments == {"project": "p", "name": "n", "dir": str(tmp_path / "r")} and (tmp_path / "r").is_dir()
    assert settings == {"console": "off", "disable_git": True, "save_code": False, "x_disable_meta": True}
    assert wandb.util.VALUE_BYTES_LIMIT == 10_000_000
    assert wandb_run.shown["wandb_api_key"] == "****" and wandb_run.shown["wandb_project"] == "p"


def test_the_wandb_key_is_in_the_environment_as_long_as_the_run_is_open(wandb_run: Any) -> None:
    assert os.environ["WANDB_API_KEY"] == "w-secret"
    teardown_exporters()
    assert "WANDB_API_KEY" not in os.environ and wandb_run.finished


def test_wandb_metrics_and_the_table_of_rollouts(wandb_run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    export_metrics({"a": 1}, step=7)
    export_rollouts({"n": number} for number in range(5))
    first, second = wandb_run.logged
    assert first == {"values": {"a": 1}, "step": 7}
    table = second["values"]["Rollouts"]
    assert table.columns == ["Rollout"] and table.data == [['{"n":0}'], ['{"n":1}'], ['{"n":2}']]
    assert "only the first 3 rollouts are sent" in capsys.readouterr().err


def test_an_mlflow_run_says_its_config_as_file_and_as_parameters(mlflow: type[FakeClient]) -> None:
    setup_exporters({**MLFLOW, "a": {"b": [1, "x" * 30]}, "none": None})
    client = mlflow.last
    assert (client.tracking_uri, client.run_name, client.experiment_id) == ("http://mlflow:5000", "run", "id of exp")
    assert client.files["global_config.json"]["mlflow_tracking_token"] == "****"
    assert client.params["a.b_0_"] == "1" and client.params["a.b_1_"] == "x" * 20
    assert client.params["none"] == "None" and "ml-secret-token" not in json.dumps(client.params)
    assert max(client.batches) == 2
    assert os.environ["MLFLOW_TRACKING_TOKEN"] == "ml-secret-token"
    teardown_exporters()
    assert client.status == "FINISHED" and "MLFLOW_TRACKING_TOKEN" not in os.environ


def test_an_mlflow_experiment_is_found_or_made_even_by_two_at_once(mlflow: type[FakeClient]) -> None:
    mlflow.experiments["exp"] = "7"
    setup_exporters(MLFLOW)
    assert mlflow.last.experiment_id == "7"
    mlflow.experiments.clear()
    mlflow.somebody_is_faster = True
    setup_exporters(MLFLOW)
    assert mlflow.last.experiment_id == "id of exp"


def test_mlflow_metrics_are_numbers_texts_are_tags(
    mlflow: type[FakeClient], capsys: pytest.CaptureFixture[str]
) -> None:
    setup_exporters(MLFLOW)
    client = mlflow.last
    export_metrics({"pass@1/x": 0.5, "ok": True, "n": 3, "said": "words of more", "nothing": None, "@": 1}, step=4)
    assert {(metric.key, metric.value, metric.step) for metric in client.metrics} == {
        ("pass_at_1/x", 0.5, 4),
        ("ok", 1.0, 4),
        ("n", 3.0, 4),
        ("_at_", 1.0, 4),
    }
    assert client.tags == {"said": "words of m"}
    export_metrics({"pass@1": 1, "pass_at_1": 2, "": 3})
    assert [(metric.key, metric.value, metric.step) for metric in client.metrics[4:]] == [("pass_at_1", 1.0, 0)]
    assert "left out" in capsys.readouterr().err


def test_mlflow_rollouts_are_a_table(mlflow: type[FakeClient]) -> None:
    setup_exporters(MLFLOW)
    export_rollouts([{"r": 1}, {"r": "é"}])
    table = json.loads(mlflow.last.files["rollouts.json"])
    assert table == {"columns": ["Rollout"], "data": [['{"r":1}'], ['{"r":"é"}']]}
    assert json.loads(mlflow.last.tags["mlflow.loggedArtifacts"]) == [{"path": "rollouts.json", "type": "table"}]


@pytest.mark.parametrize(
    ("name", "accepted"),
    [
        ("pass@4/acc", "pass_at_4/acc"),
        ("a b.c-d:e_f/g", "a b.c-d:e_f/g"),
        ("a[0]?é", "a_0__é"),
        ("/a//b/", "a/b"),
        ("../a/./.b/c.d", "__/a/_/_b/c.d"),
        ("///", ""),
        ("abcdefghijklmnopqrstuvwxyz", "abcdefg___" + "xyz"),
    ],
)
def test_names_as_mlflow_accepts_them(name: str, accepted: str) -> None:
    assert accepted_name(name, 13) == accepted


def test_plain_data_by_path() -> None:
    assert dict(flattened({"a": {"b": 1}, "c": [1, {"d": None}], "e": {}, "f": []})) == {
        "a.b": 1,
        "c[0]": 1,
        "c[1].d": None,
        "e": {},
        "f": [],
    }
