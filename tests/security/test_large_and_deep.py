"""JSON that is too large or too deep is refused wherever JSON is taken, also where a model wrote it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nemo_gym.serve import guards
from responses_api_agents.simple_agent.tools import RefusedToolCall, parsed_arguments
from tests.security.kinds import JSON_HEADERS, kind
from tests.unit.serve.toys import call_app

DEEP = {
    "just too deep": b'{"a":' * 201 + b"1" + b"}" * 201,
    "deep for parsers": b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
    "never closed": b"[" * 1_000_000,
    "hidden in a string": b'{"s": "' + b"]" * 500 + b'", "a": ' + b"[" * 500 + b"]" * 500 + b"}",
    "hidden in strings": b'{"a": ' + b'["]\\"]",' * 300 + b"1" + b"]" * 300 + b"}",
    "hidden in UTF-16": ('{"\u2258": ' * 300 + "1" + "}" * 300).encode("utf-16"),  # U+2258 has a quotation mark's byte
}
WITH_BODIES = ("resources", "agent", "model", "environment")


@pytest.mark.parametrize("body", DEEP.values(), ids=DEEP)
@pytest.mark.parametrize("name", WITH_BODIES)
async def test_deep_json_is_refused_on_every_route(name: str, body: bytes) -> None:
    one = kind(name)
    for path in one.valid.keys() - {"/mcp"}:  # whose app lives in a lifespan; see test_fuzz
        status, _, answer = await call_app(one.app, path, body, headers=JSON_HEADERS)
        assert 400 <= status < 500 and b"Traceback" not in answer, (path, status, answer[:300])


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "streamed"])
@pytest.mark.parametrize("name", WITH_BODIES)
async def test_large_bodies_are_refused_on_every_route(
    name: str, declared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guards.BodyLimit.__init__, "__kwdefaults__", {"max_bytes": 1000})
    one = kind(name)
    headers = {**JSON_HEADERS, **({"content-length": "2000"} if declared else {})}
    for path in one.valid.keys() - {"/mcp"}:
        status, _, _ = await call_app(one.app, path, b'{"a": "' + b"x" * 1991 + b'"}', headers=headers)
        assert status == 413, path


HOSTILE_ARGUMENTS: list[str] = [
    "[" * 100_000,
    '{"a":' * 100_000,
    '{"a":' * 400 + "1" + "}" * 400,
    '{"a": ' + "9" * 10_000 + "}",
    '{"a": ' + "9" * 30 + "}",
    '{"a": 1e999}',
    '{"a": NaN}',
    '{"a": -Infinity}',
    '{"a": "\\ud800"}',
    '{"\\udfff": 1}',
    "[1, 2]",
    '"x"',
    "3",
    "null",
    "",
    "{'a': 1}",
    '{"a": 1',
    '{"a": 1,}',
    "\x00",
    "\ud800",
    "{} {}",
]


@pytest.mark.parametrize("arguments", HOSTILE_ARGUMENTS, ids=lambda arguments: repr(arguments[:12]))
def test_arguments_a_model_wrote_are_refused_as_tool_output(arguments: str) -> None:
    """B71, B72: before any call is made, and in words that fit an answer."""
    with pytest.raises(RefusedToolCall) as refused:
        parsed_arguments(arguments)
    output: dict[str, Any] = json.loads(refused.value.output)
    assert "Invalid tool call arguments" in output["error"] and len(refused.value.output) < 2_000
    refused.value.output.encode()


def test_good_arguments_pass() -> None:
    assert parsed_arguments(' {"a": [1, {"b": null}], "c": "ü"} ') == {"a": [1, {"b": None}], "c": "ü"}
