"""The policy behind an OpenAI-compatible endpoint with token ids and log-probabilities, as vLLM serves them."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import Any
from uuid import uuid4

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from examples.grpo_tiny.policy import Policy, Sample
from examples.grpo_tiny.sums import decode, render

NAME = "tiny"
_GATHERING_SECONDS = 0.004
_Waiting = tuple[list[int], int, "asyncio.Future[Sample]"]


class Endpoint:
    """Answers chat completions; requests that arrive together are sampled together."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._waiting: list[_Waiting] = []

    @property
    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/models", self._models),
                Route("/tokenize", self._tokenize, methods=["POST"]),
                Route("/v1/chat/completions", self._complete, methods=["POST"]),
            ]
        )

    async def _models(self, _: Request) -> JSONResponse:
        return JSONResponse({"object": "list", "data": [{"id": NAME, "object": "model"}]})

    async def _tokenize(self, request: Request) -> JSONResponse:
        ids = render((await request.json())["messages"])
        return JSONResponse({"tokens": ids, "count": len(ids)})

    async def _complete(self, request: Request) -> JSONResponse:
        body = await request.json()
        try:
            prompt = render(body["messages"])
        except ValueError as error:
            return JSONResponse({"error": {"message": str(error)}}, status_code=400)
        sample = await self._sample(prompt, int(body.get("max_tokens") or 8))
        return JSONResponse(_completion(body, prompt, sample))

    async def _sample(self, prompt: list[int], most: int) -> Sample:
        answer: asyncio.Future[Sample] = asyncio.get_running_loop().create_future()
        self._waiting.append((prompt, most, answer))
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_later(_GATHERING_SECONDS, self._answer_all)
        return await answer

    def _answer_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        for (_, most), group in groupby(sorted(waiting, key=_shape), key=_shape):
            members = list(group)
            samples = self.policy.sample([prompt for prompt, _, _ in members], most)
            for (_, _, answer), sample in zip(members, samples, strict=True):
                if not answer.done():
                    answer.set_result(sample)


@contextmanager
def serving(policy: Policy) -> Iterator[str]:
    """The base URL of an endpoint for the policy, in a thread of this process."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(Endpoint(policy).app, log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        server.should_exit = True
        thread.join(timeout=10)


def _shape(waiting: _Waiting) -> tuple[int, int]:
    return len(waiting[0]), waiting[1]


def _completion(body: dict[str, Any], prompt: list[int], sample: Sample) -> dict[str, Any]:
    choice: dict[str, Any] = {
        "index": 0,
        "message": {"role": "assistant", "content": decode(sample.ids)},
        "finish_reason": "stop" if sample.ended else "length",
        "logprobs": None,
    }
    if body.get("logprobs"):
        entries = zip(sample.ids, sample.logprobs, strict=True)
        choice["logprobs"] = {
            "content": [{"token": f"token_id:{i}", "logprob": v, "bytes": None, "top_logprobs": []} for i, v in entries]
        }
    answer: dict[str, Any] = {
        "id": f"chatcmpl-{uuid4().hex}",
        "object": "chat.completion",
        "created": 0,
        "model": NAME,
        "choices": [choice],
        "usage": {
            "prompt_tokens": len(prompt),
            "completion_tokens": len(sample.ids),
            "total_tokens": len(prompt) + len(sample.ids),
        },
    }
    if body.get("return_token_ids"):
        answer["prompt_token_ids"], choice["token_ids"] = prompt, sample.ids
    return answer
