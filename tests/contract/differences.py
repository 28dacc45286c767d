"""How a name that we offer differs from a row of the surface; empty when it does not."""

import dataclasses
import enum
import importlib
import inspect
import types
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from tests.contract.surface import Row

# Defaults that a text cannot carry.
OPAQUE = {"<object>", "<text>", "factory", "Body(PydanticUndefined)", "_DEFAULT_MARKER_", "PydanticUndefined"}


def differences(row: Row) -> list[str]:
    try:
        found = resolve(row)
    except (ImportError, AttributeError) as error:
        return [f"missing: {error}"]
    check = _CHECKS.get(row.kind)
    return check(row, found) if check else []


def resolve(row: Row) -> Any:
    if row.kind == "module":
        return importlib.import_module(row.id)
    return getattr(importlib.import_module(row.module), row.name)


def _model(row: Row, found: Any) -> list[str]:
    if not (isinstance(found, type) and issubclass(found, BaseModel)):
        return ["is not a pydantic model"]
    wrong = [f"field {name}: missing" for name in row.fields if name not in found.model_fields]
    for name, field in found.model_fields.items():
        if (fact := row.fields.get(name)) is not None:
            wrong += [f"field {name}: {text}" for text in _field(fact, field)]
    if (extra := row.facts.get("extra")) and found.model_config.get("extra") != extra:
        wrong.append(f"extra is {found.model_config.get('extra')}, not {extra}")
    return wrong + _methods(row, found)


def _field(fact: dict[str, Any], field: FieldInfo) -> list[str]:
    wrong = []
    if "required" in fact and fact["required"] != field.is_required():
        wrong.append("required" if field.is_required() else "not required")
    if (alias := fact.get("alias")) and field.alias != alias:
        wrong.append(f"alias {field.alias}, not {alias}")
    if (expected := fact.get("default")) is not None and not expected.startswith("factory") and expected not in OPAQUE:
        default = (
            field.default
            if field.default is not PydanticUndefined
            else field.get_default(call_default_factory=True, validated_data={})
        )
        if not _same_default(default, expected):
            wrong.append(f"default {default!r}, not {expected}")
    return wrong


def _dataclass(row: Row, found: Any) -> list[str]:
    if not (isinstance(found, type) and dataclasses.is_dataclass(found)):
        return ["is not a dataclass"]
    ours = {field.name for field in dataclasses.fields(found)}
    return [
        f"field {name}: missing" for name in row.fields if name not in ours and not name.startswith("_")
    ] + _methods(row, found)


def _plain_class(row: Row, found: Any) -> list[str]:
    return _methods(row, found) if isinstance(found, type) else ["is not a class"]


def _methods(row: Row, found: type) -> list[str]:
    wrong: list[str] = []
    for name, fact in row.public_methods.items():
        method = inspect.getattr_static(found, name, None)
        if method is None:
            wrong.append(f"method {name}: missing")
        elif fact["how"] == "property":
            if not isinstance(method, property | types.GetSetDescriptorType) and not hasattr(method, "__get__"):
                wrong.append(f"{name}: not a property")
        else:
            wrong += [f"method {name}: {text}" for text in _signature(fact, method)]
    return wrong


def _function(row: Row, found: Any) -> list[str]:
    return _signature(row.facts, found) if callable(found) else ["is not callable"]


def _signature(fact: dict[str, Any], found: Any) -> list[str]:
    function: Callable[..., Any] = getattr(found, "__func__", found)
    if "params" not in fact:
        return []
    try:
        ours = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []
    wrong = []
    names, theirs = [p.name for p in ours], [p["name"] for p in fact["params"]]
    variadic = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in ours)
    if missing := [name for name in theirs if name not in names and not variadic]:
        wrong.append(f"parameters missing: {', '.join(missing)}")
    elif [name for name in names if name in theirs] != [name for name in theirs if name in names]:
        wrong.append(f"parameters in another order: {', '.join(names)}")
    by_name = {p.name: p for p in ours}
    for param in fact["params"]:
        mine = by_name.get(param["name"])
        if mine is not None and (expected := param.get("default")) is not None and expected not in OPAQUE:
            if mine.default is inspect.Parameter.empty:
                wrong.append(f"parameter {mine.name}: no default")
            elif (
                not expected.startswith("<") and not _same_default(mine.default, expected) and expected != "typing.Any"
            ):
                wrong.append(f"parameter {mine.name}: default {mine.default!r}, not {expected}")
    required = [p.name for p in ours if p.default is p.empty and p.kind not in {p.VAR_KEYWORD, p.VAR_POSITIONAL}]
    if added := [name for name in required if name not in theirs]:
        wrong.append(f"new required parameters: {', '.join(added)}")
    if fact.get("async") and not _awaitable(function):
        wrong.append("is not async")
    return wrong


def _awaitable(function: Any) -> bool:
    return inspect.iscoroutinefunction(inspect.unwrap(function)) or inspect.isasyncgenfunction(function)


def _value(row: Row, found: Any) -> list[str]:
    expected = row.facts.get("value")
    if expected is None or expected in OPAQUE or "…" in expected or expected.startswith("{<class"):
        return []
    if isinstance(found, frozenset | set):
        return [] if found == eval(expected, {"frozenset": frozenset}) else [f"is {found!r}, not {expected}"]
    return [] if repr(found) == expected else [f"is {found!r}, not {expected}"]


def _enum(row: Row, found: Any) -> list[str]:
    if not (isinstance(found, type) and issubclass(found, enum.Enum)):
        return ["is not an enum"]
    ours = {member.name: repr(member.value) for member in found}
    return [] if ours == row.facts["members"] else [f"members are {ours}"]


def _same_default(ours: Any, expected: str) -> bool:
    if isinstance(ours, FieldInfo):
        return expected.startswith("Body")
    if isinstance(ours, enum.Enum):
        return expected in {repr(ours), repr(ours.value)}
    return repr(ours) == expected or str(ours) == expected


_CHECKS: dict[str, Callable[[Row, Any], list[str]]] = {
    "model": _model,
    "class": _plain_class,
    "dataclass": _dataclass,
    "function": _function,
    "value": _value,
    "enum": _enum,
}
