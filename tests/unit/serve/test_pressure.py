"""What a provider says about too many requests reaches whoever sends them, through every server between."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI

from nemo_gym.openai_utils import NeMoGymAsyncOpenAI
from nemo_gym.schema.pressure import PRESSURE_HEADER, note_pressure, pressure_in, pressure_in_raw
from nemo_gym.serve import local
from nemo_gym.server_utils import raise_for_status, request
from tests.unit.serve.test_deadline import assembled
from tests.unit.serve.test_requests import Peer
from tests.unit.serve.toys import ToyResources, client_of, config_of, mock_client, raw_server, resources_config, serving

pytestmark = pytest.mark.usefixtures("fresh_client")

CHAT = b'{"choices":[]}'


class Link(ToyResources):
    """One server of a chain: asks the next one, or a provider, or fails after it was asked."""

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/ask")(self.ask)
        return app

    async def ask(self, body: dict[str, Any]) -> dict[str, Any]:
        if "provider" in body:
            client = NeMoGymAsyncOpenAI(base_url=body["provider"], api_key="k", max_http_attempts=body["attempts"])
            return await client.create_chat_completion(messages=[])
        answer = await self.server_client.post("inner", "/ask", json=body["then"])
        await raise_for_status(answer)
        return {}


def link(name: str, client: Any = None) -> Link:
    return Link(config=resources_config(name=name), server_client=client or mock_client())


def busy(seconds: str | None) -> bytes:
    wait = b"" if seconds is None else b"Retry-After: %s\r\n" % seconds.encode()
    return b"HTTP/1.1 429 Too Many Requests\r\n%sContent-Length: 2\r\n\r\n{}" % wait


def fine() -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(CHAT)
    return head + CHAT


async def pressure_of(monkeypatch: pytest.MonkeyPatch, *acts: bytes, attempts: int, in_process: bool = False) -> Any:
    """Status and told pressure of an answer of a chain: outer, inner, provider."""
    async with raw_server(Peer(*acts)) as provider:
        body = {"then": {"provider": f"http://127.0.0.1:{provider}", "attempts": attempts}}
        inner_app = assembled(link("inner"), monkeypatch)
        async with serving(inner_app) as inner:
            client = client_of(config_of(("inner", "resources_servers", inner)))
            neighbour = local.register("inner", f"http://127.0.0.1:{inner}", inner_app) if in_process else None
            try:
                async with serving(assembled(link("outer", client), monkeypatch)) as outer:
                    answer = await request("POST", f"http://127.0.0.1:{outer}/ask", json=body)
                    return answer.status, pressure_in(answer.headers)
            finally:
                if neighbour is not None:
                    local.unregister(neighbour)


@pytest.mark.parametrize("in_process", [False, True])
async def test_a_success_tells_of_the_wait_before_it(monkeypatch: pytest.MonkeyPatch, in_process: bool) -> None:
    told = await pressure_of(monkeypatch, busy("0.02"), fine(), attempts=3, in_process=in_process)
    assert told == (200, 0.02)


@pytest.mark.parametrize("in_process", [False, True])
async def test_a_failure_tells_of_it_too(monkeypatch: pytest.MonkeyPatch, in_process: bool) -> None:
    assert await pressure_of(monkeypatch, busy(None), attempts=1, in_process=in_process) == (500, 0.0)


async def test_who_was_not_turned_away_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await pressure_of(monkeypatch, fine(), attempts=3) == (200, None)


@pytest.mark.parametrize(("text", "seconds"), [("1.5", 1.5), ("-3", 0.0), ("soon", None), (None, None)])
def test_a_header_that_can_be_read(text: str | None, seconds: float | None) -> None:
    headers = {} if text is None else {PRESSURE_HEADER: text}
    assert pressure_in(headers) == seconds
    assert pressure_in_raw([(k.lower().encode(), v.encode()) for k, v in headers.items()]) == seconds


def test_outside_of_a_request_nobody_takes_note() -> None:
    note_pressure(1.0)
