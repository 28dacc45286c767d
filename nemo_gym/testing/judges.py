"""A judge with its answers written beforehand, in place of a server's client."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from nemo_gym.serve.local_response import LocalResponse
from nemo_gym.testing.responses import completion, response

Answer: TypeAlias = str | Mapping[str, Any] | BaseException | int
Answering: TypeAlias = Callable[[str], Answer | Awaitable[Answer]]


class ScriptedJudge:
    """Gives its answers in turn, and keeps what it was asked.

    A text becomes a response or a completion that says it, a mapping is the body of the answer, a number is an HTTP
    status, and an exception is raised. A function, which may be a coroutine's, as the only answer says what to answer
    to each prompt.
    """

    def __init__(self, *answers: Answer | Answering) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, Any]] = []
        self.servers: list[str] = []

    async def post(self, *, server_name: str, url_path: str, json: Any, **_: Any) -> LocalResponse:
        """What a server's client would get."""
        self.asked.append(json if isinstance(json, dict) else json.model_dump(mode="json"))
        self.servers.append(server_name)
        answer = await self._next()
        if isinstance(answer, BaseException):
            raise answer
        return over_http(answer, url_path)

    @property
    def prompts(self) -> list[str]:
        """The last user message of each request."""
        return [str(_messages(asked)[-1]["content"]) for asked in self.asked]

    async def _next(self) -> Answer:
        assert self.answers, f"the judge was asked once more than it has answers: {self.prompts[-1]}"
        only = len(self.answers) == 1 and callable(self.answers[0])
        answer = self.answers[0] if only else self.answers.pop(0)
        said = answer(self.prompts[-1]) if callable(answer) else answer
        return await said if inspect.isawaitable(said) else said


def over_http(answer: str | Mapping[str, Any] | int, url_path: str = "/v1/responses") -> LocalResponse:
    """The answer as a server gives it."""
    status, body = (answer, {"error": "scripted"}) if isinstance(answer, int) else (200, answer)
    say = completion if url_path.endswith("/chat/completions") else response
    content = say(body) if isinstance(body, str) else body
    encoded = json.dumps(content).encode()
    return LocalResponse(method="POST", url=f"http://judge{url_path}", status=status, raw_headers=[], body=encoded)


def _messages(asked: Mapping[str, Any]) -> list[Any]:
    """Of a request to either endpoint."""
    messages = asked.get("input") or asked.get("messages") or [{"content": ""}]
    return [{"content": messages}] if isinstance(messages, str) else list(messages)
