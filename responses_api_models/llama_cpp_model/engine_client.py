"""Asking the engine, without keeping more of its threads busy than it has."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from aiohttp import ClientSession, ClientTimeout, TCPConnector
from fastapi import HTTPException

from nemo_gym.errors import GymError
from responses_api_models.llama_cpp_model.exact_tokens import ExactTokens, asking_for_tokens, take_exact_tokens

_CHAT = "/v1/chat/completions"
_TEMPLATE = "/apply-template"
_OVERFLOW = "exceed_context_size_error"


class ContextOverflow(GymError):
    """The prompt doesn't fit the engine's context."""


class EngineFailure(RuntimeError, GymError):
    """The engine answered with an error that isn't the caller's."""


class EngineClient:
    """At most `slots` requests at a time go to the engine; the others wait here, first come first served.

    A caller that goes away takes its request with it: the connection closes and the engine stops generating.
    """

    def __init__(self, address: str, api_key: str, slots: int) -> None:
        self._address = address.rstrip("/")
        self._api_key = api_key
        self._turn = asyncio.Semaphore(slots)
        self._session: ClientSession | None = None

    async def chat(self, body: dict[str, Any], *, with_tokens: bool) -> tuple[dict[str, Any], ExactTokens | None]:
        """A chat completion, and the tokens it was made of if they are wanted.

        Raises ContextOverflow, HTTPException (400) for a request the engine refuses, EngineFailure.
        """
        async with self._turn:
            if not with_tokens:
                return await self._post(_CHAT, body), None
            completion = await self._post(_CHAT, asking_for_tokens(body))
            return completion, await take_exact_tokens(completion, self._post)

    async def shows_tools(self, tools: Sequence[Any]) -> bool:
        """Whether the model's chat template tells it of tools (in the shape of chat completions); True if unknown."""
        names = [tool.get("function", {}).get("name") for tool in tools if isinstance(tool, Mapping)]
        probe = {"messages": [{"role": "user", "content": ""}], "tools": list(tools)}
        try:
            prompt = str((await self._post(_TEMPLATE, probe)).get("prompt"))
        except (HTTPException, EngineFailure, ContextOverflow):
            return True
        return any(name and name in prompt for name in names)

    async def close(self) -> None:
        """Closes what is open."""
        if self._session is not None:
            await self._session.close()

    async def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self._api_key}", "Content-Type": "application/json"}
        async with self._http().post(self._address + path, data=orjson.dumps(body), headers=headers) as response:
            content = await response.read()
        if response.status != 200:
            raise _failure(response.status, content)
        answer: dict[str, Any] = orjson.loads(content)
        return answer

    def _http(self) -> ClientSession:
        """Made in the loop that uses it. An idle connection would keep one of the engine's threads."""
        if self._session is None:
            connector = TCPConnector(force_close=True, limit=0)
            self._session = ClientSession(connector=connector, timeout=ClientTimeout(total=None))
        return self._session


def _failure(status: int, content: bytes) -> Exception:
    try:
        error = orjson.loads(content)["error"]
        kind, message = error.get("type"), str(error.get("message"))
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        kind, message = None, content[:300].decode("utf-8", "replace")
    if kind == _OVERFLOW:
        return ContextOverflow(message)
    if status == 400 or "is not supported" in message:
        return HTTPException(400, f"the embedded engine refuses the request: {message}")
    return EngineFailure(f"the embedded engine answered {status}: {message}")
