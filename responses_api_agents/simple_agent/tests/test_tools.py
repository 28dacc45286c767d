from __future__ import annotations

import json

import pytest

from responses_api_agents.simple_agent.tools import RefusedToolCall, offered_tools, parsed_arguments, tool_path


def function(name: object) -> dict[str, object]:
    return {"type": "function", "name": name, "parameters": {}, "strict": True}


@pytest.mark.parametrize(
    "name",
    [
        "verify",
        "seed_session",
        "close_session",
        "aggregate_metrics",
        "reverify_mode",
        "mcp",
        "/verify",
        "verify/",
        "ng-rollout/x/verify",
        "mcp/x",
        "verify\n",
        "/ng-rollout/x/tool",
        ".",
        "..",
        "",
    ],
)
def test_routes_of_the_server_are_no_tools_even_when_offered(name: str) -> None:
    assert offered_tools([function(name), function("get_weather")]) == ["get_weather"]
    with pytest.raises(RefusedToolCall):
        tool_path(name, offered_tools([function(name)]))


def test_only_functions_with_a_name_are_tools_of_the_row() -> None:
    assert offered_tools([{"type": "web_search", "name": "web"}, function(None), function("b"), function("a")]) == [
        "b",
        "a",
    ]


@pytest.mark.parametrize("name", ["serach", "a/../verify", "openapi.json?x", "SEARCH", "search ", ""])
def test_a_tool_that_is_not_offered_is_refused_with_those_that_are(name: str) -> None:
    with pytest.raises(RefusedToolCall) as refused:
        tool_path(name, ["search", "open"])
    error = json.loads(refused.value.output)["error"]
    assert repr(name) in error
    assert "search, open" in error


def test_without_tools_the_refusal_says_so() -> None:
    with pytest.raises(RefusedToolCall, match="There are no tools"):
        tool_path("search", [])


@pytest.mark.parametrize(
    ("name", "path"), [("get_weather", "/get_weather"), ("a.b-c", "/a.b-c"), ("a b/c?d#e%", "/a%20b%2Fc%3Fd%23e%25")]
)
def test_names_are_encoded(name: str, path: str) -> None:
    assert tool_path(name, [name]) == path


@pytest.mark.parametrize(
    "arguments", ["{}", '{"city": "Oslo"}', '{"n": [1, {"m": null}], "x": 1e3}', ' {"a": "\\u00e9"} ']
)
def test_objects_are_arguments(arguments: str) -> None:
    assert parsed_arguments(arguments) == json.loads(arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        '{"a": 1',
        "",
        "null",
        "{'a': 1}",
        '{"a": 1,}',
        '{"a": NaN}',
        '{"a": Infinity}',
        "[1, 2]",
        '"x"',
        "3",
        "true",
        "{}{}",
        "[" * 100_000,
        '{"a":' * 500 + "1" + "}" * 500,
        '{"a": "\\ud800"}',
        '{"a": 1e999}',
        f'{{"a": {10**30}}}',
        f'{{"a": {"9" * 5_000}}}',
    ],
)
def test_everything_else_is_refused_with_the_reason(arguments: str) -> None:
    with pytest.raises(RefusedToolCall) as refused:
        parsed_arguments(arguments)
    assert json.loads(refused.value.output)["error"].startswith("Invalid tool call arguments: ")
