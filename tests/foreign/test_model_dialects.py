"""A foreign model server that only answers `responses` and `chat_completions` speaks every dialect."""

import json
from typing import Any

import httpx
import pytest

from tests.foreign.conftest import Started

ASKED = [{"role": "user", "content": "Please open: Lamp"}]


@pytest.fixture(scope="module")
def url(started: Started) -> str:
    return started.urls()["policy_model"]


def events(text: str) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


@pytest.mark.parametrize("prefix", ["", "/ng-rollout/a.b-1", "/ng-rollout/a.b-1/training-token-capture"])
def test_responses(url: str, prefix: str) -> None:
    reply = httpx.post(f"{url}{prefix}/v1/responses", json={"input": ASKED, "model": "x"}).json()
    (call,) = reply["output"]
    assert (call["name"], json.loads(call["arguments"])["title"], reply["model"]) == ("open_ticket", "Lamp", "x")


def test_streamed_responses(url: str) -> None:
    reply = httpx.post(f"{url}/v1/responses", json={"input": ASKED, "stream": True})
    kinds = [event["type"] for event in events(reply.text)]
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
    assert events(reply.text)[-1]["response"]["output"][0]["name"] == "open_ticket"


def test_chat(url: str) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "model": "x"}
    assert (
        httpx.post(f"{url}/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"] == "You said hi"
    )
    chunks = events(httpx.post(f"{url}/v1/chat/completions", json={**body, "stream": True}).text)
    said = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk["choices"])
    assert said == "You said hi"


def test_messages(url: str) -> None:
    body = {"messages": ASKED, "model": "claude", "max_tokens": 10}
    reply = httpx.post(f"{url}/v1/messages", json=body).json()
    assert reply["stop_reason"] == "tool_use" and reply["content"][0]["input"] == {"title": "Lamp", "priority": 1}
    assert events(httpx.post(f"{url}/v1/messages", json={**body, "stream": True}).text)[-1]["type"] == "message_stop"


def test_a_route_of_its_own(url: str) -> None:
    assert httpx.get(f"{url}/rules").json() == {"trigger": "Please open: "}
