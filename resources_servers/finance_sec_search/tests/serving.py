"""A server of ours, called as an agent calls it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import httpx

from nemo_gym.serve.local_response import LocalResponse
from nemo_gym.server_utils import ServerClient
from resources_servers.finance_sec_search.app import FinanceAgentResourcesServer, FinanceAgentResourcesServerConfig
from resources_servers.finance_sec_search.tests.fake_sites import ARCHIVES, FakeSites

HERE = Path(__file__).parents[1]
OFFLINE = {
    "offline": True,
    "use_cache": True,
    "cache_dir": str(HERE / "data" / "offline"),
    "edgar_search_mode": "local",
    "local_edgar_index_path": str(HERE / "data" / "offline" / "index.sqlite"),
}
JSON = {"Content-Type": "application/json"}
SEC = "https://www.sec.gov"
FILING = f"{SEC}{ARCHIVES}/aapl-20230930.htm"
MODEL = {"type": "responses_api_models", "name": "model"}


def over_http(content: Any, status: int = 200) -> LocalResponse:
    """What a model server answers: text as it is, anything else as JSON."""
    body = content if isinstance(content, str) else json.dumps(content)
    return LocalResponse(method="POST", url="http://x/", status=status, raw_headers=[], body=body.encode())


def server(*replies: Any, **config: Any) -> FinanceAgentResourcesServer:
    """A server whose models give `replies`, in order: HTTP answers, or exceptions."""
    client = MagicMock(spec=ServerClient)
    client.post = AsyncMock(
        side_effect=[r if isinstance(r, LocalResponse | BaseException) else over_http(r) for r in replies]
    )
    fields = {"host": "127.0.0.1", "port": 1, "entrypoint": "app.py", "name": "finance", **config}
    return FinanceAgentResourcesServer(
        config=FinanceAgentResourcesServerConfig.model_validate(fields), server_client=client
    )


def asked(of: FinanceAgentResourcesServer) -> list[dict[str, Any]]:
    """The bodies of the requests to models, as they are sent."""
    calls = of.server_client.post.call_args_list  # type: ignore[attr-defined]
    return [call.kwargs["json"].model_dump(exclude_unset=True) for call in calls]


class Session:
    """One rollout's session at a server."""

    def __init__(self, of: FinanceAgentResourcesServer) -> None:
        self.server = of
        transport = httpx.ASGITransport(app=of.setup_webserver())
        self.http = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:1")

    async def post(self, path: str, body: Any) -> httpx.Response:
        return await self.http.post(path, json=body)

    async def seed(self, *tools: str) -> httpx.Response:
        offered = [{"type": "function", "name": name} for name in tools]
        return await self.post("/seed_session", {"responses_create_params": {"input": "?", "tools": offered}})

    async def use(self, tool: str, **arguments: Any) -> str:
        """What a tool answers, as the model reads it."""
        answer = await self.post(f"/{tool}", arguments)
        assert answer.status_code == 200, answer.text
        content = answer.json()
        assert list(content) == ["results"]
        return str(content["results"])

    async def read(self, tool: str, **arguments: Any) -> Any:
        """The same where it is JSON."""
        return json.loads(await self.use(tool, **arguments))


def online(sites: FakeSites, *replies: Any, **config: Any) -> Session:
    """A session at a server that takes the fake sites for the SEC's."""
    own = {
        "sec_base_url": sites.url,
        "sec_data_base_url": sites.url,
        "tavily_base_url": sites.url,
        "sec_api_url": f"{sites.url}/full-text-search",
        "requests_per_second": 10_000,
        "request_timeout": 20,
        "max_retries": 2,
        **config,
    }
    return Session(server(*replies, **own))


def offline(*replies: Any, **config: Any) -> Session:
    return Session(server(*replies, **{**OFFLINE, **config}))
