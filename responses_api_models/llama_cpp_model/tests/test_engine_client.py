from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from fastapi import HTTPException

from responses_api_models.llama_cpp_model.engine_client import ContextOverflow, EngineClient, EngineFailure
from responses_api_models.llama_cpp_model.exact_tokens import ExactTokens, take_exact_tokens

BODY = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}


class StandIn:
    """An engine's HTTP side."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any, str | None]] = []
        self.answer: tuple[int, Any] = (200, {"choices": []})
        self.busy = self.most_busy = 0
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.gone = asyncio.Event()

    async def handle(self, request: web.Request) -> web.Response:
        self.seen.append((request.path, await request.json(), request.headers.get("Authorization")))
        if request.path == "/tokenize":
            return web.json_response({"tokens": [1, 2]})
        self.busy += 1
        self.most_busy = max(self.most_busy, self.busy)
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.gone.set()
            raise
        finally:
            self.busy -= 1
        status, content = self.answer
        return web.json_response(content, status=status)


@pytest.fixture
async def engine() -> StandIn:
    return StandIn()


@pytest.fixture
async def client(engine: StandIn) -> AsyncIterator[EngineClient]:
    app = web.Application()
    app.router.add_post("/{path:.*}", engine.handle)
    async with TestServer(app, handler_cancellation=True) as server:
        client = EngineClient(str(server.make_url("/")), "secret", slots=2)
        yield client
        await client.close()


async def test_a_chat_without_prompt_ids_is_one_call(engine: StandIn, client: EngineClient) -> None:
    assert await client.chat(BODY, with_tokens=False) == ({"choices": []}, None)
    assert engine.seen == [("/v1/chat/completions", BODY, "Bearer secret")]


async def test_tokens_come_from_the_engine(engine: StandIn, client: EngineClient) -> None:
    entries = [{"id": 7, "logprob": -0.5}, {"id": 8, "logprob": -1}]
    choice = {"logprobs": {"content": entries}}
    engine.answer = (200, {"choices": [choice], "__verbose": {"prompt": "<user>hi", "tokens": [7, 8]}})
    completion, tokens = await client.chat(BODY, with_tokens=True)
    assert tokens == ExactTokens([1, 2], [7, 8], [-0.5, -1.0])
    assert completion == {"choices": [choice]}
    text = {"content": "<user>hi", "add_special": True, "parse_special": True}
    assert [(path, body) for path, body, _ in engine.seen] == [
        ("/v1/chat/completions", {**BODY, "verbose": True, "return_tokens": True, "logprobs": True}),
        ("/tokenize", text),
    ]


async def scored(entries: list[int], generation: list[int], rank: int = 0) -> tuple[ExactTokens, list[dict[str, Any]]]:
    asked: list[dict[str, Any]] = []

    async def post(path: str, body: dict[str, Any]) -> dict[str, Any]:
        if path == "/tokenize":
            return {"tokens": [81] if body["content"] == "a" else [1, 2]}
        asked.append(body)
        index = len(body["prompt"]) - 2
        listed = [{"id": -1, "logprob": -9}] * rank + [{"id": generation[index], "logprob": -float(index)}]
        return {"completion_probabilities": [{"top_logprobs": listed[: body["n_probs"]]}]}

    content = [{"id": token, "logprob": -0.5} for token in entries]
    report = {"prompt": "x", "tokens": generation}
    completion = {"choices": [{"logprobs": {"content": content}}], "__verbose": report}
    return await take_exact_tokens(completion, post), asked


async def test_pieces_of_characters_are_scored() -> None:
    tokens, asked = await scored([5, 9], [5, 7, 8, 9])
    assert tokens == ExactTokens([1, 2], [5, 7, 8, 9], [-0.5, -1.0, -2.0, -3.0])
    assert [body["prompt"] for body in asked] == [[1, 2, 5], [1, 2, 5, 7], [1, 2, 5, 7, 8]]
    assert [body["cache_prompt"] for body in asked] == [False, True, True]
    assert all(body["n_predict"] == 1 and body["logit_bias"] == [[81, 1000.0]] for body in asked)


async def test_a_stop_string_is_scored() -> None:
    tokens, _ = await scored([5], [5, 6])
    assert tokens.logprobs == [-0.5, -1.0]


async def test_an_improbable_token_is_looked_for_in_the_whole_vocabulary() -> None:
    tokens, asked = await scored([], [5], rank=100)
    assert tokens.logprobs == [0.0] and [body["n_probs"] for body in asked] == [64, 1_000_000]


async def test_no_more_requests_than_slots(engine: StandIn, client: EngineClient) -> None:
    engine.go_on.clear()
    tasks = [asyncio.create_task(client.chat(BODY, with_tokens=False)) for _ in range(5)]
    while engine.busy < 2:
        await asyncio.sleep(0)
    engine.go_on.set()
    await asyncio.gather(*tasks)
    assert (engine.most_busy, len(engine.seen)) == (2, 5)


async def test_a_caller_that_goes_away_stops_its_request(engine: StandIn, client: EngineClient) -> None:
    engine.go_on.clear()
    task = asyncio.create_task(client.chat(BODY, with_tokens=False))
    while not engine.busy:
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait_for(engine.gone.wait(), 10)


def error(kind: str, message: str) -> dict[str, Any]:
    return {"error": {"type": kind, "message": message}}


@pytest.mark.parametrize(
    ("status", "content", "raised", "words"),
    [
        (400, error("exceed_context_size_error", "9 tokens"), ContextOverflow, "9 tokens"),
        (400, error("invalid_request_error", "n must be 1"), HTTPException, "n must be 1"),
        (500, error("server_error", "image input is not supported"), HTTPException, "not supported"),
        (500, error("server_error", "broken"), EngineFailure, "500: broken"),
        (503, "loading", EngineFailure, "503"),
    ],
)
async def test_errors(
    engine: StandIn, client: EngineClient, status: int, content: Any, raised: type[Exception], words: str
) -> None:
    engine.answer = (status, content)
    with pytest.raises(raised) as caught:
        await client.chat(BODY, with_tokens=False)
    assert words in str(caught.value)
