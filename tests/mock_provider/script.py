"""What the mock provider answers: replies, faults, and the rules that choose between them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar

FaultKind = Literal["status", "context_length", "drop", "half", "garbage", "hang"]
ReasoningField = Literal["reasoning_content", "reasoning", "both", "think_tags"]


class ScriptError(Exception):
    """A script file that cannot be used; the message names the key."""


@dataclass(frozen=True)
class Fault:
    """A way for a provider to fail. `status` answers with an error body; the other kinds break the exchange itself."""

    kind: FaultKind = "status"
    status: int = 500
    code: str | None = None
    message: str = "scripted failure"
    retry_after: float | str | None = None
    body: Any = None


@dataclass(frozen=True)
class ToolCall:
    """`arguments` may be a string, sent as it is (so malformed JSON can be scripted), or an object."""

    name: str
    arguments: str | dict[str, Any] = "{}"
    id: str | None = None

    @property
    def arguments_json(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


@dataclass(frozen=True)
class Reply:
    """One answer, rendered in whichever dialect asked.

    `token_ids` and `logprobs` are what a client that asks for log-probs gets; by default they are made from the text.
    `token_count` makes that many of them instead. `message_tokens` puts the whole bundle on the chat message, as
    framework servers do. `usage: False` leaves usage out. `raw` replaces the rendered body.
    """

    text: str | None = ""
    reasoning: str | None = None
    reasoning_field: ReasoningField = "reasoning_content"
    refusal: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    usage: dict[str, Any] | bool = True
    prompt_token_ids: tuple[int, ...] | None = None
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    token_count: int | None = None
    message_tokens: bool = False
    latency: float | None = None
    fault: Fault | None = None
    raw: Any = None


Turns = tuple[Reply, ...]
Part = TypeVar("Part", Fault, ToolCall)


@dataclass(frozen=True)
class Rule:
    """Applies when the last user message contains `contains`.

    `turns` is indexed by the assistant turns made since that message (the last one repeats), so a tool dialogue can be
    scripted without state. `first` is used up before it, once each, whoever asks.
    """

    contains: str
    turns: Turns
    first: Turns = ()


@dataclass(frozen=True)
class Script:
    """Chooses a reply: every `every_n`-th request, then `replies` in order, then the first rule, then `default`."""

    default: Turns = (Reply(text="Mock answer."),)
    replies: Turns = ()
    rules: tuple[Rule, ...] = ()
    every_n: int = 0
    every_reply: Reply | None = None
    latency: float = 0.0
    model: str = "mock-model"
    max_model_len: int = 1_000_000

    @classmethod
    def of(cls, *turns: Reply, **options: Any) -> Script:
        """A script with a fixed default."""
        return cls(default=turns or cls.default, **options)

    @classmethod
    def in_order(cls, *replies: Reply, **options: Any) -> Script:
        return cls(replies=replies, **options)


@dataclass
class ScriptState:
    """Walks through a script; the only state is what has been used up."""

    script: Script
    served: int = 0
    used: dict[int, int] = field(default_factory=dict)
    next_reply: int = 0

    def choose(self, last_user_message: str, turn: int) -> Reply:
        script = self.script
        self.served += 1
        if script.every_reply is not None and script.every_n and self.served % script.every_n == 0:
            return script.every_reply
        if self.next_reply < len(script.replies):
            self.next_reply += 1
            return script.replies[self.next_reply - 1]
        for index, rule in enumerate(script.rules):
            if rule.contains in last_user_message:
                used = self.used.get(index, 0)
                if used < len(rule.first):
                    self.used[index] = used + 1
                    return rule.first[used]
                return rule.turns[min(turn, len(rule.turns) - 1)]
        return script.default[min(turn, len(script.default) - 1)]


def load_script(path: Path) -> Script:
    """Reads a script file (JSON). Raises ScriptError naming the offending key."""
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ScriptError(f"{path}: {error}") from error
    return parse_script(data)


def parse_script(data: Any) -> Script:
    """A script from its JSON form; see README.md for the keys."""
    known = {"default", "replies", "when", "every", "latency", "model", "max_model_len"}
    _expect_keys(data, known, "script")
    every = data.get("every") or {}
    _expect_keys(every, {"n", "reply"}, "every")
    return Script(
        default=_turns(data["default"]) if "default" in data else Script.default,
        replies=_turns(data.get("replies", [])),
        rules=tuple(_rule(rule) for rule in data.get("when", [])),
        every_n=int(every.get("n", 0)),
        every_reply=_reply(every["reply"]) if "reply" in every else None,
        latency=float(data.get("latency", 0.0)),
        model=str(data.get("model", Script.model)),
        max_model_len=int(data.get("max_model_len", Script.max_model_len)),
    )


def _expect_keys(data: Any, known: set[str], where: str) -> None:
    if not isinstance(data, dict):
        raise ScriptError(f"{where}: expected an object, got {type(data).__name__}")
    if unknown := set(data) - known:
        raise ScriptError(f"{where}: unknown keys {sorted(unknown)}; known are {sorted(known)}")


def _rule(data: Any) -> Rule:
    _expect_keys(data, {"contains", "reply", "first"}, "when[]")
    if "contains" not in data or "reply" not in data:
        raise ScriptError("when[]: needs contains and reply")
    return Rule(contains=data["contains"], turns=_turns(data["reply"]), first=_turns(data.get("first", [])))


def _turns(data: Any) -> Turns:
    return tuple(_reply(item) for item in data) if isinstance(data, list) else (_reply(data),)


def _reply(data: Any) -> Reply:
    if isinstance(data, str):
        return Reply(text=data)
    _expect_keys(data, {f.name for f in fields(Reply)}, "reply")
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
    if "raw" in data:
        values["raw"] = data["raw"]
    if "tool_calls" in data:
        values["tool_calls"] = tuple(_part(ToolCall, call, "tool_calls[]") for call in data["tool_calls"])
    if data.get("fault") is not None:
        values["fault"] = _fault(data["fault"])
    return Reply(**values)


def _fault(data: Any) -> Fault:
    if isinstance(data, int):
        return Fault(status=data)
    if isinstance(data, str):
        return _part(Fault, {"kind": data}, "fault")
    return _part(Fault, data, "fault")


def _part(cls: type[Part], data: Any, where: str) -> Part:
    _expect_keys(data, {f.name for f in fields(cls)}, where)
    try:
        return cls(**data)
    except TypeError as error:
        raise ScriptError(f"{where}: {error}") from error
