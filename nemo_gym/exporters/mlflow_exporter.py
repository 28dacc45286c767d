"""MLflow."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import orjson

from nemo_gym.config.notices import warn
from nemo_gym.exporters.base import BaseExporter, sdk, setting
from nemo_gym.exporters.mlflow_names import accepted_name, flattened

_TOKEN_VARIABLE = "MLFLOW_TRACKING_TOKEN"
_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3", "MLFLOW_HTTP_REQUEST_TIMEOUT": "30"}
_ROLLOUTS = "rollouts.json"
_TABLES_TAG = "mlflow.loggedArtifacts"

T = TypeVar("T")


class MLflowExporter(BaseExporter):
    """A run of an experiment on an MLflow tracking server, addressed by its id, whatever run is active otherwise."""

    name: ClassVar[str] = "mlflow"
    settings: ClassVar[tuple[str, ...]] = ("mlflow_tracking_uri", "mlflow_experiment_name", "mlflow_run_name")

    def setup(self, config: Mapping[str, Any]) -> None:
        self._entities = sdk("mlflow.entities", "mlflow-skinny")
        self._limits = sdk("mlflow.utils.validation", "mlflow-skinny")
        if token := setting(config, "mlflow_tracking_token"):
            self.set_variable(_TOKEN_VARIABLE, token)
        for variable, value in _PATIENCE.items():
            if variable not in os.environ:
                self.set_variable(variable, value)
        self._client = sdk("mlflow", "mlflow-skinny").MlflowClient(tracking_uri=setting(config, self.settings[0]))
        experiment = self._experiment(setting(config, "mlflow_experiment_name") or "")
        run = self._client.create_run(experiment, run_name=setting(config, "mlflow_run_name"))
        self._run_id: str = run.info.run_id

    def teardown(self) -> None:
        self._client.set_terminated(self._run_id, "FINISHED")

    def _experiment(self, name: str) -> str:
        """The id of an experiment, made where there is none; another process may make it at the same time."""
        found = self._client.get_experiment_by_name(name)
        if found is None:
            try:
                return str(self._client.create_experiment(name))
            except Exception:
                found = self._client.get_experiment_by_name(name)
                if found is None:
                    raise
        return str(found.experiment_id)

    def _log_config(self, config: dict[str, Any]) -> None:
        self._client.log_dict(self._run_id, config, "global_config.json")
        longest = int(self._limits.MAX_PARAM_VAL_LENGTH)
        params = [
            self._entities.Param(name, str(value)[:longest]) for name, value in self._named(dict(flattened(config)))
        ]
        for batch in _batches(params, int(self._limits.MAX_PARAMS_TAGS_PER_BATCH)):
            self._client.log_batch(self._run_id, params=batch)

    def _log_metrics(self, metrics: Mapping[str, Any], step: int | None) -> None:
        now = int(time.time() * 1000)
        numbers, texts = [], []
        for name, value in self._named({name: value for name, value in metrics.items() if value is not None}):
            if isinstance(value, bool | int | float):
                numbers.append(self._entities.Metric(name, float(value), now, step or 0))
            else:
                text = str(value)[: int(self._limits.MAX_TAG_VAL_LENGTH)]
                texts.append(self._entities.RunTag(name, text))
        for batch in _batches(numbers, int(self._limits.MAX_METRICS_PER_BATCH)):
            self._client.log_batch(self._run_id, metrics=batch)
        for batch in _batches(texts, int(self._limits.MAX_PARAMS_TAGS_PER_BATCH)):
            self._client.log_batch(self._run_id, tags=batch)

    def _log_rollouts(self, rollouts: Iterable[Mapping[str, Any]]) -> None:
        """A table as MLflow shows it, written row by row: its own way of making one wants pandas and all rows."""
        with tempfile.TemporaryDirectory(prefix="nemo-gym-mlflow-") as folder:
            path = Path(folder, _ROLLOUTS)
            _write_table(path, rollouts)
            self._client.log_artifact(self._run_id, str(path))
        self._client.set_tag(self._run_id, _TABLES_TAG, json.dumps([{"path": _ROLLOUTS, "type": "table"}]))

    def _named(self, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        """The values under names that MLflow accepts, each name once; others are warned about and left out."""
        seen: set[str] = set()
        left_out = []
        for name, value in values.items():
            accepted = accepted_name(str(name), int(self._limits.MAX_ENTITY_KEY_LENGTH))
            if not accepted or accepted in seen:
                left_out.append(str(name))
                continue
            seen.add(accepted)
            yield accepted, value
        if left_out and "names" not in self._complained:
            self._complained.add("names")
            warn(f"{self.name}: left out, since MLflow has no name for them or has it already: {', '.join(left_out)}.")


def _write_table(path: Path, rollouts: Iterable[Mapping[str, Any]]) -> None:
    with path.open("wb") as file:
        file.write(b'{"columns":["Rollout"],"data":[')
        for number, rollout in enumerate(rollouts):
            text = orjson.dumps(rollout, option=orjson.OPT_NON_STR_KEYS).decode()
            file.write((b"," if number else b"") + orjson.dumps([text]))
        file.write(b"]}")


def _batches(items: Sequence[T], size: int) -> Iterator[list[T]]:
    for start in range(0, len(items), size):
        yield list(items[start : start + size])
