"""A function as a tool: its schema from its annotations and docstring, and how it is called."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError

from nemo_gym.onefile.errors import EnvironmentFileError, place_of
from nemo_gym.onefile.threads import in_thread
from nemo_gym.serve.mcp_names import RESERVED_MCP_TOOL_NAMES

PROVIDED = ("task", "state")
"""Parameters that the episode fills in, not the model."""

RESERVED = RESERVED_MCP_TOOL_NAMES | {"reverify_mode"}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_SECTION = re.compile(r"^\s*(?:Args|Arguments|Parameters):\s*$", re.MULTILINE)
_OTHER_SECTION = re.compile(r"^\s*(?:Returns|Raises|Yields|Examples?|Notes?):\s*$", re.MULTILINE)
_ARGUMENT = re.compile(r"^\s*(\w+)(?: \([^)]*\))?: (.+)$")
_OF_NAMES, _OF_VALUES = ("properties", "$defs"), ("default", "const", "enum", "examples")
"""Keys of a schema below which are no keys of a schema."""


@dataclass(frozen=True)
class Tool:
    """`arguments` validates what a model sends; `provided` are the parameters it doesn't send."""

    name: str
    description: str
    function: Callable[..., Any]
    arguments: type[BaseModel]
    provided: tuple[str, ...]

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Tool:
        """Raises EnvironmentFileError for a function that can't be one."""
        name = function.__name__
        if name in RESERVED or name.startswith("_"):
            raise EnvironmentFileError(f"{place_of(function)}: a tool can't be called `{name}`: rename it.")
        if not _NAME.fullmatch(name):
            raise EnvironmentFileError(
                f"{place_of(function)}: a tool can't be called `{name}`: providers take at most 64 letters a-z and "
                "A-Z, digits and underscores."
            )
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise EnvironmentFileError(f"{place_of(function)}: the tool `{name}` yields: return a list instead.")
        description, about = _described(inspect.getdoc(function) or "")
        fields, provided = _fields(function, about)
        try:
            arguments = create_model(f"{name}_arguments", __config__=ConfigDict(extra="forbid"), **fields)
            arguments.model_json_schema()
        except (PydanticUserError, TypeError) as error:
            reason = str(error).splitlines()[0]
            raise EnvironmentFileError(
                f"{place_of(function)}: the parameters of `{name}` can't be described to a model ({reason}): use str, "
                "int, float, bool, list, dict, Literal, or a pydantic model."
            ) from error
        return cls(name, description, function, arguments, provided)

    @property
    def needs_state(self) -> bool:
        """Whether it takes a state and can't do without."""
        if "state" not in self.provided:
            return False
        parameter = inspect.signature(self.function).parameters["state"]
        return parameter.default is parameter.empty

    def schema(self) -> dict[str, Any]:
        """The tool as a row offers it to a model."""
        parameters = _without_titles(self.arguments.model_json_schema())
        parameters = {"type": "object", "properties": {}, "required": [], **parameters}
        return {
            "type": "function",
            "name": self.name,
            "description": self.description,
            "parameters": parameters,
            "strict": False,
        }

    def validated(self, arguments: Mapping[str, Any]) -> BaseModel:
        """The arguments a model sent. Raises ValueError that says which are wrong."""
        try:
            return self.arguments.model_validate(arguments)
        except ValidationError as error:
            problems = (f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
            raise ValueError(f"wrong arguments for {self.name}: {'; '.join(problems)}") from error

    async def call(self, arguments: BaseModel, provided: Mapping[str, Any]) -> Any:
        """What the function returns; a plain one runs in a thread. What it raises comes through."""
        given = {str(field.alias): getattr(arguments, name) for name, field in self.arguments.model_fields.items()}
        return await called(self.function, {**given, **{name: provided[name] for name in self.provided}})


async def called(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """What a function returns, off the event loop unless it is a coroutine function."""
    if inspect.iscoroutinefunction(function):
        return await function(**arguments)
    return await in_thread(function, arguments)


def parameters_among(function: Callable[..., Any], known: Iterable[str], what: str) -> tuple[str, ...]:
    """The names of a function's parameters, which must be `known`. Raises EnvironmentFileError for any other."""
    names = tuple(inspect.signature(function).parameters)
    known = tuple(known)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise EnvironmentFileError(
            f"{place_of(function)}: {what} `{function.__name__}` can't have a parameter `{unknown[0]}`: it may take "
            f"{', '.join(known)}."
        )
    return names


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a function. Raises EnvironmentFileError for one that means nothing."""
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, TypeError, SyntaxError) as error:
        raise EnvironmentFileError(
            f"{place_of(function)}: a type of `{function.__name__}` can't be read ({error})."
        ) from error


def _fields(function: Callable[..., Any], about: Mapping[str, str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    hints, fields, provided = hints_of(function), {}, []
    for number, (name, parameter) in enumerate(inspect.signature(function).parameters.items()):
        if name in PROVIDED:
            provided.append(name)
            continue
        if parameter.kind is not parameter.POSITIONAL_OR_KEYWORD and parameter.kind is not parameter.KEYWORD_ONLY:
            raise EnvironmentFileError(
                f"{place_of(function)}: `{function.__name__}` has the parameter `{parameter}`: a model sends arguments "
                "by name, so give each a name of its own."
            )
        if name not in hints:
            raise EnvironmentFileError(
                f"{place_of(function)}: the parameter `{name}` of the tool `{function.__name__}` has no type: write "
                f"`{name}: str`, or what it is."
            )
        hint, text = _with_text(hints[name])
        default = ... if parameter.default is parameter.empty else parameter.default
        # Numbered fields: a parameter may be called like a method of a model.
        fields[f"argument_{number}"] = (hint, Field(default, alias=name, description=text or about.get(name)))
    return fields, tuple(provided)


def _with_text(hint: Any) -> tuple[Any, str | None]:
    """A type and the text beside it in `Annotated[type, "text"]`."""
    if get_origin(hint) is not Annotated:
        return hint, None
    kind, *metadata = get_args(hint)
    text = next((item for item in metadata if isinstance(item, str)), None)
    kept = tuple(item for item in metadata if not isinstance(item, str))
    return (Annotated[(kind, *kept)] if kept else kind), text


def _described(docstring: str) -> tuple[str, dict[str, str]]:
    """What a docstring says of a function, and of each argument in its `Args:`."""
    description, *rest = _SECTION.split(_OTHER_SECTION.split(docstring)[0], maxsplit=1)
    arguments = rest[0] if rest else ""
    found = filter(None, map(_ARGUMENT.match, arguments.splitlines()))
    return " ".join(description.split()), {match[1]: match[2].strip() for match in found}


def _without_titles(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_titles(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _below(key, item) for key, item in schema.items() if key != "title"}


def _below(key: str, item: Any) -> Any:
    if key in _OF_NAMES:
        return {name: _without_titles(schema) for name, schema in item.items()}
    return item if key in _OF_VALUES else _without_titles(item)
