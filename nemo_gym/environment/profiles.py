"""Telling from an agent's source which part of a rollout is its own."""

from __future__ import annotations

import ast
from pathlib import Path

from nemo_gym.environment.composition import Composition
from nemo_gym.environment.manifest import IntegrationProfile

_STANDARD_AGENT, _STANDARD_CLASS = "simple_agent", "SimpleAgent"
_LOOP = "responses"


def infer_profile(composition: Composition, agent_file: Path) -> tuple[IntegrationProfile | None, str]:
    """The profile that a composition looks like, None where that can't be told, and why."""
    if composition.rollout_driver is not None:
        profile = IntegrationProfile.EXTERNAL_ROLLOUT_DRIVER
        return profile, f"rollout_collection_driver is {composition.rollout_driver}"
    if composition.agent.implementation == _STANDARD_AGENT:
        return IntegrationProfile.CUSTOM_GYM_VERIFIER, f"the agent is {_STANDARD_AGENT}"
    try:
        tree = ast.parse(agent_file.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError) as error:
        return None, f"{agent_file} can't be read: {error}"
    served = _served_class(tree)
    if served is None:
        return None, f"{agent_file} serves no class by run_webserver()"
    return _of_class(served, agent_file)


def _of_class(served: ast.ClassDef, agent_file: Path) -> tuple[IntegrationProfile | None, str]:
    place = f"{agent_file.name}: {served.name}"
    loop = next((node for node in served.body if isinstance(node, _FUNCTIONS) and node.name == _LOOP), None)
    if loop is None:
        if any(isinstance(base, ast.Name | ast.Attribute) and _name(base) == _STANDARD_CLASS for base in served.bases):
            return IntegrationProfile.CUSTOM_GYM_VERIFIER, f"{place} is a {_STANDARD_CLASS} with its own loop"
        return None, f"{place} inherits its {_LOOP}()"
    body = [node for node in loop.body if not _is_docstring(node)]
    if len(body) == 1 and _raises_not_implemented(body[0]):
        return IntegrationProfile.EXTERNAL_AGENT_LOOP, f"{place}.{_LOOP}() is not implemented"
    if any(_raises_not_implemented(node) for node in ast.walk(loop)):
        return None, f"{place}.{_LOOP}() is implemented for some cases only"
    if len(body) == 1 and _delegates(body[0]):
        return None, f"{place}.{_LOOP}() only calls its parent's"
    return IntegrationProfile.CUSTOM_GYM_AGENT_LOOP, f"{place} has a {_LOOP}() of its own"


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _served_class(tree: ast.Module) -> ast.ClassDef | None:
    """The class on which `run_webserver` is called."""
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "run_webserver":
            served = _name(node.func.value)
            if served in classes:
                return classes[served]
    return None


def _name(node: ast.expr) -> str | None:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _raises_not_implemented(node: ast.AST) -> bool:
    if not isinstance(node, ast.Raise) or node.exc is None:
        return False
    raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    return _name(raised) == "NotImplementedError"


def _delegates(node: ast.stmt) -> bool:
    """Whether a statement is `return [await] super().responses(…)`."""
    value = node.value if isinstance(node, ast.Return | ast.Expr) else None
    call = value.value if isinstance(value, ast.Await) else value
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr != _LOOP:
        return False
    parent = call.func.value
    return isinstance(parent, ast.Call) and _name(parent.func) == "super"
