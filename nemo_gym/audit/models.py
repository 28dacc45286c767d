"""The models of an audit: the policy that follows a script, and a judge that is fair."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Receive, Scope, Send

from nemo_gym.testing.replies import Script
from nemo_gym.testing.responses import response

MARK = "zebra-7314"
"""Is in everything the audit has a candidate say that is no right answer, so that the judge knows it by."""

MOST_CALLS = 200

Ask = Callable[[dict[str, Any]], dict[str, Any] | None]


class ModelApp:
    """A model server of one route in two dialects. `answer` gets a request's body; None is answered with a 500."""

    def __init__(self, answer: Ask) -> None:
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        answer = self._answer(json.loads(body or b"{}"))
        if answer is not None and scope["path"].endswith("/chat/completions"):
            answer = _as_chat(answer)
        status, content = (500, {"error": "the audit's model has no answer"}) if answer is None else (200, answer)
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(content).encode()})


@dataclass
class Policy:
    """Follows a script. `calls` counts how often it was asked; past `MOST_CALLS` it has no answer any more."""

    script: Script
    calls: int = 0
    _heard: int = 0

    def answer(self, body: dict[str, Any]) -> dict[str, Any] | None:
        self.calls += 1
        if self.calls > MOST_CALLS:
            return None
        items = _messages(body)
        seen = "" if self.calls == 1 else "\n".join(filter(None, map(_said_by_environment, items[self._heard :])))
        self._heard = len(items)
        return response(*self.script.next(seen))


@dataclass
class FairJudge:
    """Says `verdict(prompt)`, after quoting what the candidate wrote, as judges that reason do.

    A silent one says nothing.
    """

    verdict: Callable[[str], str]
    is_silent: bool = False
    prompts: list[str] = field(default_factory=list)

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        prompt = "\n".join(filter(None, map(_text_of, _messages(body))))
        self.prompts.append(prompt)
        if self.is_silent:
            return response("")
        quoted = "\n".join(line for line in prompt.splitlines() if MARK in line)
        verdict = self.verdict(prompt)
        return response(f"The candidate says: {quoted}\n\n{verdict}" if quoted else verdict)


def _messages(body: Mapping[str, Any]) -> list[Any]:
    given = body.get("input") or body.get("messages") or []
    return [{"role": "user", "content": given}] if isinstance(given, str) else list(given)


def _said_by_environment(item: Any) -> str:
    if not isinstance(item, Mapping):
        return ""
    if item.get("type") == "function_call_output":
        output = item.get("output")
        return output if isinstance(output, str) else _text_of({"content": output})
    return _text_of(item) if item.get("role") in ("user", "tool") else ""


def _text_of(message: Any) -> str:
    content = message.get("content") if isinstance(message, Mapping) else None
    parts: Iterable[Any] = [content] if isinstance(content, str) else content or ()
    texts = (part if isinstance(part, str) else part.get("text") for part in parts)
    return "\n".join(text for text in texts if isinstance(text, str))


def _as_chat(answer: Mapping[str, Any]) -> dict[str, Any]:
    """A response as a chat completion."""
    items = answer["output"]
    calls = [
        {"id": item["call_id"], "type": "function", "function": {"name": item["name"], "arguments": item["arguments"]}}
        for item in items
        if item.get("type") == "function_call"
    ]
    text = "".join(_text_of(item) for item in items if item.get("type") == "message")
    message = {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    return {"id": "c", "object": "chat.completion", "created": 0, "model": "audit", "choices": [choice]}
