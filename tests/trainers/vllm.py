"""An engine as vLLM serves one to trainers: it really renders a chat template, tokenises, and honours true prefixes.

With `drift` the tokens it samples are single characters, which tokenising their text again never gives: only a client
that sends back the ids of earlier turns gets prompts that continue them.
"""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

END = "<|end|>"
_PIECES = re.compile(r"<\|[a-z]+\|>|<call>|</call>|\s*[^\s<]+|\s+|<")
Message = Mapping[str, Any]


@dataclass
class Engine:
    """`fault` is the status every chat completion is answered with; `extras` are put on every message."""

    drift: bool = False
    fault: int | None = None
    extras: dict[str, Any] = field(default_factory=dict)
    vocabulary: list[str] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)

    @property
    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/models", self._models),
                Route("/tokenize", self._tokenize, methods=["POST"]),
                Route("/v1/chat/completions", self._complete, methods=["POST"]),
            ]
        )

    def encode(self, pieces: Sequence[str]) -> list[int]:
        ids = []
        for piece in pieces:
            if piece not in self.vocabulary:
                self.vocabulary.append(piece)
            ids.append(self.vocabulary.index(piece))
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.vocabulary[index] for index in ids)

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """The template's ids, except that those of turns whose true ids are known are these."""
        ids = self._template(messages)
        known = [i for i, message in enumerate(messages) if message.get("generation_token_ids")]
        if not known:
            return ids
        last = messages[known[-1]]
        true = [*last["prompt_token_ids"], *last["generation_token_ids"]]
        so_far = self._template(messages[: known[-1] + 1], opens=False)
        return true + ids[len(so_far) :]

    def _template(self, messages: Sequence[Message], *, opens: bool = True) -> list[int]:
        text = "".join(f"<|{message['role']}|>{_body(message)}{END}" for message in messages)
        return self.encode(_PIECES.findall(text + ("<|assistant|>" if opens else "")))

    async def _models(self, _: Request) -> JSONResponse:
        return JSONResponse({"object": "list", "data": [{"id": "m", "object": "model", "max_model_len": 100_000}]})

    async def _tokenize(self, request: Request) -> JSONResponse:
        ids = self.prompt((await request.json())["messages"])
        return JSONResponse({"tokens": ids, "count": len(ids), "max_model_len": 100_000})

    async def _complete(self, request: Request) -> JSONResponse:
        body = await request.json()
        self.requests.append(body)
        if self.fault is not None:
            return JSONResponse({"error": {"message": "no such luck", "code": self.fault}}, status_code=self.fault)
        if body.get("logprobs") and body.get("top_logprobs") is None:
            return JSONResponse({"error": {"message": "top_logprobs must be set"}}, status_code=400)
        prompt, message = self.prompt(body["messages"]), _answer(body)
        text = _body(message)
        generated = self.encode([*(text if self.drift else _PIECES.findall(text)), END])
        logprobs = [-(index % 7 + 1) / 8 for index in range(len(generated))]
        entries = [{"token": f"token_id:{i}", "logprob": v} for i, v in zip(generated, logprobs, strict=True)]
        choice: dict[str, Any] = {
            "index": 0,
            "message": message | self.extras,
            "finish_reason": "tool_calls" if message.get("tool_calls") else "stop",
            "logprobs": {"content": [entry | {"bytes": None, "top_logprobs": []} for entry in entries]},
        }
        envelope: dict[str, Any] = {
            "id": f"chatcmpl-{uuid4().hex}",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
        }
        envelope |= {"created": 1, "choices": [choice], "usage": None}
        if body.get("return_token_ids"):
            choice["token_ids"] = generated
            envelope["prompt_token_ids"] = prompt
        return JSONResponse(envelope)


@contextmanager
def serving(engine: Engine) -> Iterator[str]:
    """The base URL of the engine, in a thread of this process."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(engine.app, log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        server.should_exit = True
        thread.join(timeout=10)


def _body(message: Message) -> str:
    """What the template makes of a message."""
    content = message.get("content") or ""
    if not isinstance(content, str):
        content = "".join(part.get("text", "") for part in content)
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    return content + "".join(f"<call>{call['name']} {call['arguments']}</call>" for call in calls)


def _answer(body: Mapping[str, Any]) -> dict[str, Any]:
    """Calls a tool where there is one, then says what it told; else the boxed A."""
    last = body["messages"][-1]
    if last["role"] == "tool":
        return {"role": "assistant", "content": f"It says {_body(last)}"}
    if body.get("tools"):
        call = {"name": "get_weather", "arguments": json.dumps({"city": "Oslo"})}
        calls = [{"id": f"call_{uuid4().hex[:8]}", "type": "function", "function": call}]
        return {"role": "assistant", "content": "I look it up.", "tool_calls": calls}
    return {"role": "assistant", "content": "It must be \\boxed{A}"}
