"""Files of data sets from a GitLab model registry, here one on loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from nemo_gym import gitlab_utils
from nemo_gym.config_types import DownloadJsonlDatasetGitlabConfig
from nemo_gym.datasets.errors import DatasetError
from nemo_gym.errors import GymError

ROWS = b'{"a": 1}\n'


class Registry(ThreadingHTTPServer):
    """Knows version 0.0.1 of `set`, whose run is `r1`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seen: list[tuple[str, str | None]] = []
        self.url = f"http://127.0.0.1:{self.server_port}/mlflow"
        self.artifacts = f"{self.url}/files/"


class _Handler(BaseHTTPRequestHandler):
    server: Registry

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        token = self.headers.get("Authorization")
        self.server.seen.append((url.path, token))
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        if token != "Bearer t0ken" and "files" not in url.path:
            self.answer(401, {})
        elif url.path.endswith("model-versions/get"):
            known = query == {"name": "set", "version": "0.0.1"}
            self.answer(200, {"model_version": {"run_id": "r1"} if known else {}})
        elif url.path.endswith("runs/get"):
            self.answer(200, {"run": {"info": {"artifact_uri": self.server.artifacts}}})
        elif url.path.endswith("/train.jsonl"):
            self.answer(200, ROWS)
        else:
            self.answer(404, {"message": "not found"})

    def answer(self, status: int, body: Any) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

    def log_message(self, *args: Any) -> None:
        return None


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def configured(monkeypatch: pytest.MonkeyPatch, **config: Any) -> None:
    monkeypatch.setattr(gitlab_utils, "get_global_config_dict", lambda: config)


def wanted(tmp_path: Path, **changes: str) -> DownloadJsonlDatasetGitlabConfig:
    fields = {"dataset_name": "set", "version": "0.0.1", "artifact_fpath": "train.jsonl"}
    return DownloadJsonlDatasetGitlabConfig(
        **{**fields, "output_fpath": str(tmp_path / "new" / "out.jsonl"), **changes}
    )


def test_a_file_is_written(registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configured(monkeypatch, mlflow_tracking_uri=registry.url, mlflow_tracking_token="t0ken")
    gitlab_utils.download_jsonl_dataset(wanted(tmp_path))
    assert (tmp_path / "new" / "out.jsonl").read_bytes() == ROWS
    assert {token for _, token in registry.seen} == {"Bearer t0ken"}


def test_the_token_goes_to_the_registry_s_host_only(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.artifacts = registry.artifacts.replace("127.0.0.1", "localhost")
    configured(monkeypatch, mlflow_tracking_uri=registry.url, mlflow_tracking_token="t0ken")
    gitlab_utils.download_jsonl_dataset(wanted(tmp_path))
    assert registry.seen[-1] == ("/mlflow/files/train.jsonl", None)


@pytest.mark.parametrize(
    ("changes", "token", "message"),
    [
        ({"artifact_fpath": "none.jsonl"}, "t0ken", "answered 404 for none.jsonl of set 0.0.1"),
        ({"version": "9.9.9"}, "t0ken", "no run of set 9.9.9"),
        ({}, "wrong", "answered 401.*Check mlflow_tracking_token"),
    ],
)
def test_what_can_not_be_had_leaves_the_old_file(
    registry: Registry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, str],
    token: str,
    message: str,
) -> None:
    configured(monkeypatch, mlflow_tracking_uri=registry.url, mlflow_tracking_token=token)
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "out.jsonl").write_text("old")
    with pytest.raises(DatasetError, match=message):
        gitlab_utils.download_jsonl_dataset(wanted(tmp_path, **changes))
    assert [path.read_text() for path in (tmp_path / "new").iterdir()] == ["old"]


def test_a_registry_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configured(monkeypatch, mlflow_tracking_uri="http://127.0.0.1:1", mlflow_tracking_token="t")
    with pytest.raises(DatasetError, match=r"http://127\.0\.0\.1:1 can't be asked"):
        gitlab_utils.download_jsonl_dataset(wanted(tmp_path))


def test_without_credentials_the_error_says_where_they_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configured(monkeypatch, mlflow_tracking_uri="http://x")
    with pytest.raises(GymError, match=r"env\.yaml"):
        gitlab_utils.download_jsonl_dataset(wanted(tmp_path))
