from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel

from nemo_gym.onefile.errors import EnvironmentFileError
from nemo_gym.onefile.tools import Tool, called, parameters_among


class Point(BaseModel):
    x: int
    title: str = "here"


def lookup(city: Annotated[str, "Name of the city"], unit: Literal["C", "F"] = "C", state: Any = None) -> str:
    """Look up the weather
    in a city.

    Args:
        unit: The scale.

    Returns:
        A sentence.
    """
    return f"{city} {unit} {state}"


def test_the_schema_comes_from_types_defaults_and_docstring() -> None:
    assert Tool.of(lookup).schema() == {
        "type": "function",
        "name": "lookup",
        "description": "Look up the weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name of the city"},
                "unit": {"type": "string", "enum": ["C", "F"], "default": "C", "description": "The scale."},
            },
            "required": ["city"],
            "additionalProperties": False,
        },
        "strict": False,
    }


def test_a_tool_without_parameters_has_an_empty_object() -> None:
    def wait() -> None:
        """Wait."""

    parameters = Tool.of(wait).schema()["parameters"]
    assert parameters == {"type": "object", "properties": {}, "required": [], "additionalProperties": False}


def test_models_keep_fields_called_title() -> None:
    def go(to: Point) -> None:
        """Go."""

    point = Tool.of(go).schema()["parameters"]["$defs"]["Point"]
    assert point["properties"]["title"] == {"type": "string", "default": "here"}
    assert "title" not in point


async def test_parameters_may_be_called_like_methods_of_models() -> None:
    def make(copy: int, json: str = "j", model_fields: int = 1) -> list[Any]:
        return [copy, json, model_fields]

    tool = Tool.of(make)
    assert await tool.call(tool.validated({"copy": 2, "model_fields": 3}), {}) == [2, "j", 3]


async def test_task_and_state_are_filled_in() -> None:
    tool = Tool.of(lookup)
    assert tool.provided == ("state",)
    assert await tool.call(tool.validated({"city": "Oslo"}), {"task": {}, "state": [1]}) == "Oslo C [1]"


async def test_plain_functions_run_off_the_event_loop_and_coroutines_on_it() -> None:
    def plain() -> str:
        return threading.current_thread().name

    async def coroutine() -> str:
        return threading.current_thread().name

    here = threading.current_thread().name
    for function, is_here in ((plain, False), (coroutine, True)):
        tool = Tool.of(function)
        assert (await tool.call(tool.validated({}), {}) == here) is is_here


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [({}, "city: Field required"), ({"city": 3}, "city: Input should"), ({"city": "a", "x": 1}, "x: Extra inputs")],
)
def test_wrong_arguments_are_said(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Tool.of(lookup).validated(arguments)


def untyped(a, b: int) -> int:  # type: ignore[no-untyped-def]
    return b


def many(*values: int) -> int:
    return 0


def positional(a: int, /) -> int:
    return a


def unknown(a: Nowhere) -> int:  # type: ignore[name-defined]  # noqa: F821
    return 0


def unserialisable(a: Callable[[], int]) -> int:
    return 0


def verify(a: int) -> int:
    return a


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (untyped, "the parameter `a` of the tool `untyped` has no type"),
        (many, r"has the parameter `\*values"),
        (positional, "has the parameter `a"),
        (unknown, "'Nowhere' is not defined"),
        (unserialisable, "can't be described to a model"),
        (verify, "can't be called `verify`"),
    ],
)
def test_what_is_no_tool_is_said_with_its_line(function: Any, problem: str) -> None:
    with pytest.raises(EnvironmentFileError, match=problem) as caught:
        Tool.of(function)
    assert str(caught.value).startswith(f"{__file__}:{function.__code__.co_firstlineno}: ")


def test_parameters_of_other_functions_are_checked() -> None:
    assert parameters_among(lambda task, state: 0, ("response", "task", "state"), "it") == ("task", "state")
    with pytest.raises(EnvironmentFileError, match="can't have a parameter `row`: it may take response, task"):
        parameters_among(lambda row: 0, ("response", "task"), "the verifier")


KEY: ContextVar[str] = ContextVar("KEY")


async def test_what_runs_in_a_thread_sees_the_context_and_ends_with_the_program() -> None:
    KEY.set("mine")
    name, is_daemon = await called(lambda: (KEY.get(), threading.current_thread().daemon), {})
    assert (name, is_daemon) == ("mine", True)


async def test_a_stop_iteration_is_an_error_like_others() -> None:
    def first(values: list[int]) -> int:
        return next(iter(values))

    async with asyncio.timeout(10):
        with pytest.raises(RuntimeError, match="StopIteration"):
            await called(first, {"values": []})


@pytest.mark.parametrize("name", ["reverify_mode", "verify", "seed_session"])
def test_routes_of_the_server_are_no_tools(name: str) -> None:
    def tool() -> None:
        """Do."""

    tool.__name__ = name
    with pytest.raises(EnvironmentFileError, match=f"a tool can't be called `{name}`: rename it"):
        Tool.of(tool)


def test_titles_that_are_values_stay() -> None:
    def lend(book: dict[str, Any] = {"title": "A", "pages": 1}) -> None:  # noqa: B006 - a default as people write it
        """Lend a book."""

    properties = Tool.of(lend).schema()["parameters"]["properties"]
    assert properties["book"]["default"] == {"title": "A", "pages": 1}
