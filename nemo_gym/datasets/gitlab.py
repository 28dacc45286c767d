"""Files of data sets in a GitLab model registry, over the part of MLflow's HTTP interface that GitLab speaks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from nemo_gym.config.dataset_entries import JsonlDatasetGitlabIdentifer
from nemo_gym.datasets.errors import DatasetError

if TYPE_CHECKING:
    import httpx

TIMEOUT_SECONDS = 60.0
_API = "api/2.0/mlflow"


@dataclass(frozen=True)
class ModelRegistry:
    """A GitLab project's registry, by its MLflow tracking URI and an access token."""

    tracking_uri: str
    token: str

    def download(self, dataset: JsonlDatasetGitlabIdentifer, target: Path) -> None:
        """Write one file of a version of a data set; nothing is left at `target` when that fails.

        Raises DatasetError naming data set, version and what the server said.
        """
        import httpx

        what = f"{dataset.artifact_fpath} of {dataset.dataset_name} {dataset.version}"
        try:
            with httpx.Client(timeout=TIMEOUT_SECONDS, follow_redirects=True) as client:
                url = f"{self._artifact_uri(client, dataset).rstrip('/')}/{quote(dataset.artifact_fpath)}"
                with client.stream("GET", url, headers=self._headers(url)) as answer, _replacing(target) as file:
                    answer.raise_for_status()
                    for chunk in answer.iter_bytes():
                        file.write(chunk)
        except httpx.HTTPStatusError as error:
            status = error.response.status_code
            hint = " Check mlflow_tracking_token." if status in (401, 403) else ""
            raise DatasetError(f"GitLab answered {status} for {what}.{hint}") from error
        except httpx.HTTPError as error:
            raise DatasetError(f"GitLab at {self.tracking_uri} can't be asked for {what}: {error}") from error

    def _artifact_uri(self, client: httpx.Client, dataset: JsonlDatasetGitlabIdentifer) -> str:
        what = f"{dataset.dataset_name} {dataset.version}"
        version = self._get(client, "model-versions/get", name=dataset.dataset_name, version=dataset.version)
        run_id = version.get("model_version", {}).get("run_id")
        if not run_id:
            raise DatasetError(f"GitLab knows no run of {what}: check name and version.")
        uri = self._get(client, "runs/get", run_id=run_id).get("run", {}).get("info", {}).get("artifact_uri")
        if not uri:
            raise DatasetError(f"GitLab doesn't say where the files of {what} are.")
        return str(uri)

    def _get(self, client: httpx.Client, path: str, **parameters: str) -> dict[str, Any]:
        url = f"{self.tracking_uri.rstrip('/')}/{_API}/{path}"
        answer = client.get(url, params=parameters, headers=self._headers(url))
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found

    def _headers(self, url: str) -> dict[str, str]:
        """The token, for the registry's own host only."""
        is_own = urlsplit(url).netloc == urlsplit(self.tracking_uri).netloc
        return {"Authorization": f"Bearer {self.token}"} if is_own else {}


@contextmanager
def _replacing(target: Path) -> Iterator[Any]:
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            yield file
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
