"""Stand-ins for the libraries of trackers, and a tracker of our own."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from nemo_gym.exporters import EXPORTERS, BaseExporter, teardown_exporters


class Diary(BaseExporter):
    """Keeps what it is sent; `fails` makes it raise instead."""

    name = "diary"
    settings = ("diary_name", "diary_key")
    fails = False
    last: "Diary"

    def setup(self, config: Mapping[str, Any]) -> None:
        type(self).last = self
        self.given, self.config = config, dict[str, Any]()
        self.metrics: list[tuple[dict[str, Any], int | None]] = []
        self.rollouts: list[dict[str, Any]] = []
        self.closed = 0

    def teardown(self) -> None:
        self._maybe_fail()
        self.closed += 1

    def _log_config(self, config: dict[str, Any]) -> None:
        self._maybe_fail()
        self.config = config

    def _log_metrics(self, metrics: Mapping[str, Any], step: int | None) -> None:
        self._maybe_fail()
        self.metrics.append((dict(metrics), step))

    def _log_rollouts(self, rollouts: Iterable[Mapping[str, Any]]) -> None:
        self._maybe_fail()
        self.rollouts += map(dict, rollouts)

    def _maybe_fail(self) -> None:
        if self.fails:
            raise ConnectionError("nobody\nthere")


DIARY = {"diary_name": "run 1", "diary_key": "d1ary-secret"}


@pytest.fixture(autouse=True)
def diary(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Diary]]:
    """A tracker besides those of Gym, which every test leaves closed."""
    monkeypatch.setitem(EXPORTERS, "diary", Diary)
    monkeypatch.setattr(Diary, "fails", False)
    monkeypatch.delattr(Diary, "last", raising=False)
    yield Diary
    teardown_exporters()


class FakeRun:
    def __init__(self, arguments: dict[str, Any]) -> None:
        self.arguments = arguments
        self.logged: list[dict[str, Any]] = []
        self.shown: dict[str, Any] = {}
        self.config = SimpleNamespace(update=lambda values, allow_val_change: self.shown.update(values))
        self.finished = False

    def log(self, values: dict[str, Any], *, step: int | None = None, commit: bool) -> None:
        assert commit
        self.logged.append({"values": values, "step": step})

    def finish(self) -> None:
        self.finished = True


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What Gym uses of the wandb library; `runs` are those that were opened."""
    module: Any = ModuleType("wandb")
    module.runs = []
    module.util = SimpleNamespace(VALUE_BYTES_LIMIT=1)
    module.Settings = type(
        "Settings",
        (SimpleNamespace,),
        {"model_fields": dict.fromkeys(["console", "disable_git", "save_code", "x_disable_meta"])},
    )

    class Table(SimpleNamespace):
        MAX_ARTIFACT_ROWS = 3

    module.Table = Table

    def init(**arguments: Any) -> FakeRun:
        module.runs.append(FakeRun(arguments))
        return module.runs[-1]  # type: ignore[no-any-return]

    module.init = init
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    return module


class FakeClient:
    """An MLflow server with one run, as its client shows it."""

    experiments: dict[str, str] = {}
    last: "FakeClient"
    somebody_is_faster = False

    def __init__(self, tracking_uri: str) -> None:
        type(self).last = self
        self.tracking_uri = tracking_uri
        self.params: dict[str, str] = {}
        self.metrics: list[SimpleNamespace] = []
        self.tags: dict[str, str] = {}
        self.files: dict[str, Any] = {}
        self.batches: list[int] = []
        self.status = "RUNNING"

    def get_experiment_by_name(self, name: str) -> SimpleNamespace | None:
        known = self.experiments.get(name)
        return SimpleNamespace(experiment_id=known) if known else None

    def create_experiment(self, name: str) -> str:
        self.experiments[name] = f"id of {name}"
        if self.somebody_is_faster:
            raise RuntimeError("RESOURCE_ALREADY_EXISTS")
        return self.experiments[name]

    def create_run(self, experiment_id: str, run_name: str) -> SimpleNamespace:
        self.run_name, self.experiment_id = run_name, experiment_id
        return SimpleNamespace(info=SimpleNamespace(run_id="run-1"))

    def log_batch(self, run_id: str, metrics: Any = (), params: Any = (), tags: Any = ()) -> None:
        assert run_id == "run-1"
        self.batches.append(len(metrics) + len(params) + len(tags))
        self.metrics += metrics
        self.params |= {param.key: param.value for param in params}
        self.tags |= {tag.key: tag.value for tag in tags}

    def log_dict(self, run_id: str, value: Any, name: str) -> None:
        self.files[name] = value

    def log_artifact(self, run_id: str, path: str) -> None:
        self.files[Path(path).name] = Path(path).read_bytes()

    def set_tag(self, run_id: str, key: str, value: str) -> None:
        self.tags[key] = value

    def set_terminated(self, run_id: str, status: str) -> None:
        self.status = status


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> type[FakeClient]:
    """What Gym uses of the mlflow library."""
    monkeypatch.setattr(FakeClient, "experiments", {})
    monkeypatch.setattr(FakeClient, "somebody_is_faster", False)
    modules: dict[str, Any] = {name: ModuleType(name) for name in ("mlflow", "mlflow.entities", "mlflow.utils")}
    modules["mlflow"].MlflowClient = FakeClient
    entities = modules["mlflow.entities"]
    entities.Param = lambda key, value: SimpleNamespace(key=key, value=value)
    entities.RunTag = lambda key, value: SimpleNamespace(key=key, value=value)
    entities.Metric = lambda key, value, when, step: SimpleNamespace(key=key, value=value, step=step)
    modules["mlflow.utils.validation"] = SimpleNamespace(
        MAX_PARAM_VAL_LENGTH=20,
        MAX_PARAMS_TAGS_PER_BATCH=2,
        MAX_METRICS_PER_BATCH=2,
        MAX_TAG_VAL_LENGTH=10,
        MAX_ENTITY_KEY_LENGTH=40,
    )
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    for variable in ("MLFLOW_TRACKING_TOKEN", "MLFLOW_HTTP_REQUEST_MAX_RETRIES", "MLFLOW_HTTP_REQUEST_TIMEOUT"):
        monkeypatch.delenv(variable, raising=False)
    return FakeClient
