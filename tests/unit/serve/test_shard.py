"""What a process with several servers needs of each of them."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import httpx
import itsdangerous
import pytest
from fastapi import APIRouter, FastAPI, Request
from omegaconf import OmegaConf
from pydantic import BaseModel
from starlette.types import ASGIApp, Receive, Scope, Send

from nemo_gym.config.errors import ConfigError
from nemo_gym.config.instances import BaseServerConfig
from nemo_gym.config.placement import ShardMember
from nemo_gym.serve import local
from nemo_gym.serve.cancellation import ClientDisconnectCancellationMiddleware
from nemo_gym.serve.guards import BodyLimit, HostGuard
from nemo_gym.serve.json_app import json_app
from nemo_gym.serve.json_route import JSONRoute
from nemo_gym.serve.sessions import _Signer
from nemo_gym.serve.shard import load_class, prefix_by_member, share_of, speaking_for
from nemo_gym.server_utils import ServerClient


class Limits(BaseModel):
    max_concurrent_requests: int | None = 9
    num_concurrent_requests: int = 1
    max_concurrent_episodes: int | None = None
    max_steps: int = 9


def test_limits_of_a_process_are_divided_and_never_nothing() -> None:
    share = share_of(Limits(), 2)
    assert share == Limits(max_concurrent_requests=4, num_concurrent_requests=1)
    assert share_of(Limits(), 1) == Limits()


def test_two_files_of_one_name_are_two_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "app.py").write_text(f"class Toy:\n    shareable = True\n    name = {name!r}\n")
        monkeypatch.delitem(sys.modules, f"test_shard.{name}.app", raising=False)
    members = [ShardMember(n, str(tmp_path / n / "app.py"), f"test_shard.{n}.app", "Toy") for n in ("one", "two")]
    classes = [load_class(member) for member in members]
    assert [vars(each)["name"] for each in classes] == ["one", "two"]
    assert load_class(members[0]) is classes[0]
    assert sys.modules["test_shard.one.app"].__dict__["Toy"] is classes[0]


@pytest.mark.parametrize("source", ["class Toy:\n    shareable = False\n", "Toy = 1\n", ""])
def test_a_class_that_may_not_share_is_refused(tmp_path: Path, source: str) -> None:
    file = tmp_path / "app.py"
    file.write_text(source)
    with pytest.raises(ConfigError, match="shareable = True"):
        load_class(ShardMember("toy", str(file), f"test_shard.{tmp_path.name}.app", "Toy"))


def test_a_file_that_fails_leaves_no_module_behind(tmp_path: Path) -> None:
    file = tmp_path / "app.py"
    file.write_text("raise RuntimeError('broken')")
    with pytest.raises(RuntimeError, match="broken"):
        load_class(ShardMember("toy", str(file), "test_shard.broken.app", "Toy"))
    assert "test_shard.broken.app" not in sys.modules


def test_lines_are_prefixed_with_the_server_they_are_of(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    prefix_by_member()
    print("nobody's")
    with speaking_for("mcqa"):
        print("its own")
    assert out.getvalue() == "nobody's\n(mcqa) its own\n"


class Layer:
    """Middleware that somebody has put around a server."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["path"] = "/seen"
        await self.app(scope, receive, send)


@pytest.mark.parametrize(("is_inner", "skipped"), [(True, True), (False, False)])
async def test_calls_within_the_process_pass_all_but_what_watches_the_network(is_inner: bool, skipped: bool) -> None:
    app = FastAPI()

    @app.get("/seen")
    async def seen(request: Request) -> dict[str, bool]:
        return {"same app": request.app is app}

    if is_inner:
        app.add_middleware(Layer)
    app.add_middleware(ClientDisconnectCancellationMiddleware)
    app.add_middleware(BodyLimit, max_bytes=1)
    app.add_middleware(HostGuard)
    if not is_inner:
        app.add_middleware(Layer)
    app.middleware_stack = app.build_middleware_stack()
    server = local.register("toy", "http://127.0.0.1:1", app)
    try:
        answer = await server.request("POST" if not skipped else "GET", "/elsewhere", data=b"more than one byte")
    finally:
        local.unregister(server)
    assert answer.status == (200 if skipped else 413)
    assert not skipped or await answer.json() == {"same app": True}


def test_cookies_are_signed_as_starlette_signs_them() -> None:
    theirs, ours = itsdangerous.TimestampSigner("secret"), _Signer("secret")
    assert theirs.unsign(ours.sign("text")) == ours.unsign(theirs.sign(b"text")) == b"text"


def test_a_client_can_find_servers_at_other_ports() -> None:
    block = {"entrypoint": "app.py", "host": "127.0.0.1"}
    config = OmegaConf.create(
        {
            "agent": {"responses_api_agents": {"toy": {**block, "port": 1}}},
            "model": {"responses_api_models": {"toy": {**block, "port": 2}}},
        }
    )
    client = ServerClient(head_server_config=BaseServerConfig(host="127.0.0.1", port=9), global_config_dict=config)
    moved = client.at({"agent": 7})
    assert moved.base_url("agent") == "http://127.0.0.1:7"
    assert moved.base_url("model") == client.base_url("model") == "http://127.0.0.1:2"
    assert client.base_url("agent") == "http://127.0.0.1:1"


async def test_a_route_is_found_by_its_path_wherever_it_is_mounted() -> None:
    app, below, router = json_app(), json_app(), APIRouter(route_class=JSONRoute)

    @router.post("/deep")
    @below.post("/deep")
    @app.post("/{name}")
    @app.post("/flat")
    async def echo(body: dict[str, int]) -> dict[str, int]:
        return body

    app.include_router(router, prefix="/included")
    app.mount("/mounted", below)
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")
    for path in ("/flat", "/anything", "/included/deep", "/mounted/deep"):
        assert (await client.post(path, json={"a": 1})).json() == {"a": 1}, path
    assert (await client.get("/flat")).status_code == 405
    assert (await client.post("/included/other", json={})).status_code == 404
