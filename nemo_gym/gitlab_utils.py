"""Data sets in a GitLab model registry."""

from __future__ import annotations

from pathlib import Path

from nemo_gym.cli._compat import moved_attr_getter
from nemo_gym.config_types import ConfigError, DownloadJsonlDatasetGitlabConfig, MLFlowConfig
from nemo_gym.global_config import get_global_config_dict

__all__ = ["download_jsonl_dataset"]

__getattr__ = moved_attr_getter(
    __name__, dict.fromkeys(("upload_jsonl_dataset_cli", "download_jsonl_dataset_cli"), "nemo_gym.cli.dataset")
)


def download_jsonl_dataset(config: DownloadJsonlDatasetGitlabConfig) -> None:
    """Write a file of a data set to `config.output_fpath`.

    Raises ConfigError without `mlflow_tracking_uri` and `mlflow_tracking_token` in the config, DatasetError when the
    file can't be had.
    """
    from nemo_gym.datasets.gitlab import ModelRegistry

    registry = MLFlowConfig.model_validate(get_global_config_dict())
    if not registry.mlflow_tracking_uri or not registry.mlflow_tracking_token:
        raise ConfigError(
            "Data sets on GitLab need `mlflow_tracking_uri` and `mlflow_tracking_token`: add them to env.yaml, as with "
            "`mlflow_tracking_token: ${oc.env:MLFLOW_TRACKING_TOKEN}`."
        )
    source = ModelRegistry(registry.mlflow_tracking_uri, registry.mlflow_tracking_token)
    source.download(config, Path(config.output_fpath))
