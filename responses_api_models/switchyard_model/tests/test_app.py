from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from fastapi.testclient import TestClient
from omegaconf import OmegaConf
from pydantic import ValidationError

from nemo_gym.config.errors import ConfigError
from nemo_gym.server_utils import ServerClient
from responses_api_models.local_vllm_model import engine_process
from responses_api_models.switchyard_model import deployment
from responses_api_models.switchyard_model.app import SwitchyardModelServer, SwitchyardModelServerConfig
from tests.mock_provider import Fault, MockProvider, Reply

COMPONENT = Path(__file__).parents[1]
QUESTION = {"role": "user", "content": "What is up?"}
SEAT = {"host": "127.0.0.1", "port": 1, "entrypoint": "app.py", "name": "policy_model"}
HEADER = "x-switchyard-session-id"


@pytest.fixture
def mock() -> Iterator[MockProvider]:
    with MockProvider(Reply(text="Not much.")) as provider:
        yield provider


def make_server(base_url: str | None, global_config: dict[str, Any] | None = None, **config: Any) -> Any:
    fields = {**SEAT, "switchyard_base_url": base_url, "switchyard_model": "route", "switchyard_api_key": "sk-sesame"}
    client = MagicMock(spec=ServerClient)
    client.global_config_dict = {"observability_enabled": False} if global_config is None else global_config
    return SwitchyardModelServer(
        config=SwitchyardModelServerConfig.model_validate({**fields, **config}), server_client=client
    )


def make_client(mock: MockProvider, **config: Any) -> TestClient:
    server = make_server(mock.base_url, **config)
    app = server.setup_webserver()
    server.setup_exception_middleware(app)
    return TestClient(app)


PREFIX = "/ng-rollout/7-0"
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/responses", {"input": [QUESTION]}),
    ("/v1/chat/completions", {"messages": [QUESTION]}),
    ("/v1/messages", {"messages": [QUESTION], "model": "m", "max_tokens": 5}),
]


@pytest.mark.parametrize(("path", "body"), CALLS)
def test_the_rollout_is_the_session(mock: MockProvider, path: str, body: dict[str, Any]) -> None:
    client = make_client(mock, default_headers={"x-team": "gym"}, extra_body={"top_p": 0.1})
    for prefix, session in ((PREFIX, "7-0"), ("/ng-rollout/8-1/training-token-capture", "8-1"), ("", None)):
        reply = client.post(prefix + path, json=body)
        assert reply.status_code == 200 and "Not much." in reply.text
        sent = mock.requests[-1]
        assert (sent.headers.get(HEADER), sent.headers["x-team"]) == (session, "gym")
        assert sent.headers["authorization"] == "Bearer sk-sesame"
        assert (sent.body["model"], sent.body["top_p"]) == ("route", 0.1)


def test_the_headers_can_be_named(mock: MockProvider) -> None:
    make_client(mock, session_id_headers=["x-a", "x-b"]).post(f"{PREFIX}/v1/responses", json={"input": "hi"})
    headers = mock.requests[-1].headers
    assert (headers["x-a"], headers["x-b"], HEADER in headers) == ("7-0", "7-0", False)
    make_client(mock, forward_session_id=False).post(f"{PREFIX}/v1/responses", json={"input": "hi"})
    assert HEADER not in mock.requests[-1].headers


def test_without_correlation_a_wish_is_an_error_and_the_default_a_warning(
    mock: MockProvider, caplog: pytest.LogCaptureFixture
) -> None:
    make_client(mock)
    assert "observability_enabled" in caplog.text
    with pytest.raises(ConfigError, match="forward_session_id"):
        make_client(mock, forward_session_id=True)
    caplog.clear()
    make_client(mock, forward_session_id=False)
    assert not caplog.text


@pytest.mark.parametrize("switch", ["observability", "tokens"])
def test_with_correlation_nothing_is_said(
    mock: MockProvider, tmp_path: Path, caplog: pytest.LogCaptureFixture, switch: str
) -> None:
    observed = {"observability_enabled": True, "model_call_capture_dir": str(tmp_path)}
    config = observed if switch == "observability" else {"token_id_capture": {"enabled": True, "dir": str(tmp_path)}}
    make_server(mock.base_url, config, forward_session_id=True).setup_webserver()
    assert "forward_session_id" not in caplog.text


def test_condition_and_stats(mock: MockProvider, tmp_path: Path) -> None:
    mock.pages["/v1/stats"] = {"total_requests": 2}
    folder = tmp_path / "new"
    with make_client(
        mock, condition_dir=folder, proxy_provenance={"commit": "abc"}, default_headers={"x-api-key": "sk-other"}
    ) as client:
        client.post("/v1/responses", json={"input": "hi"})
        mock.play(Reply(fault=Fault(status=400)))
        client.post("/v1/responses", json={"input": "hi"})
    condition = json.loads((folder / "switchyard-condition.json").read_text())
    settings = condition["config"]
    assert (settings["switchyard_model"], settings["proxy_provenance"]) == ("route", {"commit": "abc"})
    assert settings["switchyard_api_key"] == "****" and "sk-" not in json.dumps(condition)
    stats = json.loads((folder / "switchyard-stats.json").read_text())
    assert stats == {"calls": {"requests": 2, "errors": 1}, "proxy": {"total_requests": 2}}


def test_records_are_best_effort(mock: MockProvider, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    with make_client(mock, condition_dir=tmp_path / "file") as client:
        assert client.post("/v1/responses", json={"input": "hi"}).status_code == 200
    assert "can't be written" in caplog.text and "can't be read" in caplog.text


# --- a proxy of its own -----------------------------------------------------------------------------------------------

FAKE = """#!{python}
import http.server, json, sys
arguments = dict(zip(sys.argv[1::2], sys.argv[2::2]))
if "broken" in open(arguments["--config"]).read():
    sys.exit(3)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        content = json.dumps({{"status": "ok", "arguments": arguments}}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
    def log_message(self, *args): pass
http.server.HTTPServer((arguments["--host"], int(arguments["--port"])), Handler).serve_forever()
"""


@pytest.fixture
def routes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "bin" / deployment.PROGRAM
    program.parent.mkdir()
    program.write_text(FAKE.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(engine_process, "POLL_SECONDS", 0.05)
    path = tmp_path / "routes.toml"
    path.write_text("[routes]\n")
    return path


def test_a_deployment_is_started_and_ended(routes: Path, tmp_path: Path) -> None:
    server = make_server(None, deployment=routes, condition_dir=tmp_path)
    with TestClient(server.setup_webserver()):
        proxy = server._proxy
        assert server._client.base_url == proxy.base_url and proxy.base_url.startswith("http://127.0.0.1:")
    assert proxy.process._process.returncode is not None
    condition = json.loads((tmp_path / "switchyard-condition.json").read_text())
    assert len(condition["deployment_sha256"]) == 64
    stats = json.loads((tmp_path / "switchyard-stats.json").read_text())
    assert stats["proxy"]["arguments"]["--config"] == str(routes)


def test_a_deployment_that_fails_says_so(routes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    routes.write_text("broken")
    with pytest.raises(engine_process.EngineEnded, match="exit code 3"):
        make_server(None, deployment=routes).setup_webserver()
    with pytest.raises(ConfigError, match="doesn't exist"):
        make_server(None, deployment=tmp_path / "no.toml").setup_webserver()
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigError, match="switchyard-server"):
        make_server(None, deployment=routes).setup_webserver()


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"deployment": "routes.toml", "switchyard_base_url": "http://x/v1"}, "either"),
        ({"switchyard_base_url": None}, "either"),
        ({"switchyard_base_url": None, "deployment": "routes.toml", "num_workers": 2}, "num_workers"),
        ({"session_id_headers": []}, "session_id_headers"),
    ],
)
def test_wrong_settings(config: dict[str, Any], reason: str) -> None:
    fields = {**SEAT, "switchyard_base_url": "http://x/v1", "switchyard_model": "route", **config}
    with pytest.raises(ValidationError, match=reason):
        SwitchyardModelServerConfig.model_validate(fields)


def test_shipped_config() -> None:
    policy = {"policy_base_url": "http://x/v1", "policy_api_key": "k", "policy_model_name": "m"}
    config: Any = OmegaConf.merge(OmegaConf.load(COMPONENT / "configs" / "switchyard_model.yaml"), policy)
    block: Any = OmegaConf.to_container(config.policy_model.responses_api_models.switchyard_model, resolve=True)
    parsed = SwitchyardModelServerConfig.model_validate({**SEAT, **block})
    assert (parsed.switchyard_base_url, parsed.switchyard_model, parsed.session_id_headers) == (
        "http://x/v1",
        "m",
        [HEADER],
    )
