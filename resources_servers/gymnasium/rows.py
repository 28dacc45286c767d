"""What an environment reads of a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from fastapi import HTTPException
from pydantic import BaseModel, ValidationError

from nemo_gym.task_data import normalize_task_fields

TaskT = TypeVar("TaskT", bound=BaseModel)


def task_of(model: type[TaskT], metadata: Mapping[str, Any]) -> TaskT:
    """The task's fields of a row, also where they are in its `verifier_metadata`. HTTPException 400 naming the field
    that can't be used."""
    fields, _ = normalize_task_fields(dict(metadata))
    return validated(model, fields)


def validated(model: type[TaskT], fields: Mapping[str, Any]) -> TaskT:
    """These fields as a `model`. HTTPException 400 naming the one that can't be used."""
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        name = ".".join(map(str, problem["loc"])) or "fields"
        raise HTTPException(400, f"The row's {name}: {problem['msg']}.") from None
