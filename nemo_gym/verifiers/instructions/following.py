"""Whether texts follow the instructions of a row: a call for a worker process."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, Literal, TypeAlias

from nemo_gym.verifiers.instructions.ifbench import IFBENCH
from nemo_gym.verifiers.instructions.registry import InstructionError, Instructions
from nemo_gym.verifiers.instructions.training import TRAINING
from nemo_gym.verifiers.verdicts import RowError
from nemo_gym.verifiers.worker_pool import WorkerPool

Kind: TypeAlias = Literal["training", "ifbench"]
Checkers: TypeAlias = Literal["auto", "own", "package"]
"""Whose checks: ours, those of the package that 0.7 uses, or of the package if it is there and else ours."""

Kwargs: TypeAlias = Sequence[Mapping[str, Any] | None]

_KINDS: dict[Kind, Instructions] = {"training": TRAINING, "ifbench": IFBENCH}


def instruction_pool(max_workers: int | None = None) -> WorkerPool:
    """Workers that know where NLTK's data are."""
    variables = {name: os.environ[name] for name in ("NLTK_DATA",) if name in os.environ}
    return WorkerPool(max_workers, memory_bytes=4 << 30, environment=variables)


def package_there(name: str) -> bool:
    """Whether the package of a module can be imported, without importing it."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def followed(
    kind: Kind,
    ids: Sequence[str],
    kwargs: Kwargs,
    texts: Sequence[str],
    *,
    registry: ModuleType | None = None,
    prompt: str | None = None,
) -> list[list[bool]]:
    """For each text, which instructions it follows; ids and kwargs go in pairs, and blank texts follow none.

    `registry` is a module with checks of IFEval's kind, that go before ours. Raises InstructionError,
    MissingLibraryError.
    """
    pairs = list(zip(ids, kwargs, strict=False))
    if registry is None:
        own = _KINDS[kind]
        return [[bool(text.strip()) and own.follows(name, each, text) for name, each in pairs] for text in texts]
    return [
        [
            bool(text.strip()) and reference_follows(registry.INSTRUCTION_DICT, name, each, text, prompt)
            for name, each in pairs
        ]
        for text in texts
    ]


def graded(following: Sequence[bool], mode: str) -> float:
    """1 for all followed (`binary`), or the share of those (`fraction`; 0 of none). Raises RowError for other modes."""
    if mode == "binary":
        return float(all(following))
    if mode == "fraction":
        return sum(following) / len(following) if following else 0.0
    raise RowError(f"grading_mode is {mode!r}: make it binary or fraction")


def reference_follows(
    registry: Mapping[str, Any], instruction_id: str, arguments: Mapping[str, Any] | None, text: str, prompt: str | None
) -> bool:
    """What the check of a registry of IFEval's kind says; whatever it raises means no.

    Nulls among the arguments don't count, and `prompt` is given to those that want it. Raises InstructionError for an
    instruction that isn't there.
    """
    kind = registry.get(instruction_id)
    if kind is None:
        raise InstructionError(f"The instruction {instruction_id!r} is unknown.")
    given = {name: value for name, value in (arguments or {}).items() if value is not None}
    try:
        instruction = kind(instruction_id)
        instruction.build_description(**given)
        if prompt is not None and "prompt" in (instruction.get_instruction_args_keys() or ()):
            instruction.build_description(prompt=prompt)
        return bool(instruction.check_following(text))
    except Exception:
        return False
