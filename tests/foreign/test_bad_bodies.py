"""Bodies nobody should send: a running server says what is wrong with them, and goes on."""

import random
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.foreign.conftest import Started
from tests.spoiling import spoiled

RAW = [
    b"",
    b"{",
    b"null",
    b"17",
    b'"text"',
    b"\xff\xfe{}",
    b"[" * 100_000,
    b'{"a":' * 3_000 + b"1" + b"}" * 3_000,
    b'{"a": %s}' % (b"9" * 5_000),
    b'{"a": 1e999, "b": NaN, "title": "\\ud800", "input": "\\udfff"}',
]
ODD: list[Any] = [
    None,
    True,
    -1,
    2**70,
    float("nan"),
    float("inf"),
    "",
    "\ud800",
    "../verify",
    [],
    [[]],
    [None],
    {},
    {"": 0},
]
PARAMS = {"input": [{"role": "user", "content": "Please open: Lamp"}], "temperature": 0.5, "tools": []}
MESSAGES = [{"role": "user", "content": "hello"}]
RESPONSE = {
    "id": "r",
    "created_at": 0,
    "model": "m",
    "object": "response",
    "output": [
        {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "a", "annotations": []}],
        }
    ],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}
VALID: list[tuple[str, str, dict[str, Any]]] = [
    ("ticket_desk", "/seed_session", {"first_tickets": ["a"]}),
    ("ticket_desk", "/open_ticket", {"title": "a", "priority": 1}),
    ("ticket_desk", "/list_tickets", {"x": 1}),
    (
        "ticket_desk",
        "/verify",
        {"responses_create_params": PARAMS, "response": RESPONSE, "expected_titles": ["a"], "extra": {"a": [1]}},
    ),
    ("ticket_desk_hand_agent", "/v1/responses", PARAMS),
    ("ticket_desk_hand_agent", "/run", {"responses_create_params": PARAMS, "expected_titles": ["lamp"]}),
    (
        "two_tries",
        "/run",
        {"episode_id": {"rollout_id": "a"}, "task": {"task_input": {"responses_create_params": PARAMS}}},
    ),
    ("policy_model", "/v1/responses", PARAMS),
    ("policy_model", "/v1/chat/completions", {"messages": MESSAGES, "stream": False, "max_tokens": 5}),
    ("policy_model", "/v1/messages", {"model": "m", "max_tokens": 5, "messages": MESSAGES}),
]


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=30, headers={"content-type": "application/json"}) as client:
        yield client


@pytest.fixture(scope="module")
def urls(started: Started) -> dict[str, str]:
    return started.urls()


@pytest.mark.parametrize(("server", "path", "valid"), VALID, ids=lambda value: value if isinstance(value, str) else "")
def test_bad_bodies_are_refused(
    client: httpx.Client, urls: dict[str, str], server: str, path: str, valid: dict[str, Any]
) -> None:
    rng = random.Random(path)
    for body in [*RAW, *(spoiled(valid, rng, ODD, most=3) for _ in range(80))]:
        client.cookies.clear()
        reply = client.post(urls[server] + path, content=body)
        assert "Traceback" not in reply.text
        # An agent answers 500 for a server behind it that refused what it passed on, and names that server's reason.
        passed_on = server == "ticket_desk_hand_agent" and "answered 422" in reply.text
        assert reply.status_code < 500 or passed_on, (body[:500], reply.status_code, reply.text)


def test_the_servers_still_work(client: httpx.Client, urls: dict[str, str]) -> None:
    client.cookies.clear()
    row = {"responses_create_params": PARAMS, "expected_titles": ["lamp"]}
    assert client.post(urls["ticket_desk_hand_agent"] + "/run", json=row).json()["reward"] == 1.0
