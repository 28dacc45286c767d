"""Weights & Biases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import orjson

from nemo_gym.config.keys import RESULTS_DIR_KEY_NAME
from nemo_gym.config.notices import warn
from nemo_gym.config.roots import RESULTS_DIR
from nemo_gym.exporters.base import BaseExporter, sdk, setting

_VALUE_BYTES = 10_000_000
_TABLE_BYTES = 512 * 1024 * 1024
_KEY_VARIABLE = "WANDB_API_KEY"
_PRIVATE = {
    "console": "off",
    "disable_git": True,
    "save_code": False,
    "x_disable_meta": True,
    "x_save_requirements": False,
}
"""Nothing is sent unasked: not what is printed, not the command line (both may hold secrets), not the code."""


class WandbExporter(BaseExporter):
    """A run of a project at Weights & Biases. Its files are in `<results_dir>/wandb`."""

    name: ClassVar[str] = "wandb"
    settings: ClassVar[tuple[str, ...]] = ("wandb_project", "wandb_name", "wandb_api_key")

    def setup(self, config: Mapping[str, Any]) -> None:
        wandb = sdk("wandb", "wandb")
        folder = Path(setting(config, RESULTS_DIR_KEY_NAME) or RESULTS_DIR)
        folder.mkdir(parents=True, exist_ok=True)
        self.set_variable(_KEY_VARIABLE, setting(config, "wandb_api_key") or "")
        wandb.util.VALUE_BYTES_LIMIT = _VALUE_BYTES
        known = getattr(wandb.Settings, "model_fields", {})
        private = {name: value for name, value in _PRIVATE.items() if name in known}
        self._wandb = wandb
        self._run = wandb.init(
            project=setting(config, "wandb_project"),
            name=setting(config, "wandb_name"),
            dir=str(folder),
            settings=wandb.Settings(**private),
        )

    def teardown(self) -> None:
        self._run.finish()

    def _log_config(self, config: dict[str, Any]) -> None:
        self._run.config.update(config, allow_val_change=True)

    def _log_metrics(self, metrics: Mapping[str, Any], step: int | None) -> None:
        self._run.log(dict(metrics), step=step, commit=True)

    def _log_rollouts(self, rollouts: Iterable[Mapping[str, Any]]) -> None:
        table = self._wandb.Table(columns=["Rollout"], data=self._rows(rollouts))
        self._run.log({"Rollouts": table}, commit=True)

    def _rows(self, rollouts: Iterable[Mapping[str, Any]]) -> list[list[str]]:
        """A table is held in memory whole, so there is an end to it."""
        rows: list[list[str]] = []
        size = 0
        most = int(getattr(self._wandb.Table, "MAX_ARTIFACT_ROWS", 200_000))
        for rollout in rollouts:
            text = orjson.dumps(rollout, option=orjson.OPT_NON_STR_KEYS)
            size += len(text)
            if size > _TABLE_BYTES or len(rows) == most:
                warn(f"{self.name}: only the first {len(rows)} rollouts are sent, as many as fit in one table.")
                break
            rows.append([text.decode()])
        return rows
