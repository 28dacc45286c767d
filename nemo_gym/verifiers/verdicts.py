"""The answer to a verify request: a reward, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel

from nemo_gym.errors import GymError
from nemo_gym.schema.failure_kinds import VERIFIER_ERROR

V = TypeVar("V", bound=BaseModel)

_MEASURED: Mapping[str, Any] = {"mask_sample": False, "failure_kind": None, "failure_reason": None}


class RowError(GymError):
    """A row says nothing about any response: its fault, not the model's."""

    failure_kind = VERIFIER_ERROR


def verdict(kind: type[V], request: BaseModel, own: Mapping[str, Any] | None = None, /, **fields: Any) -> V:
    """A verify response of `kind`: the fields of the request it declares, then `own` and `fields`, `reward` among them.

    What an earlier verdict left in the request (`mask_sample`, `failure_kind`, `failure_reason`) doesn't count, and
    nothing is copied or validated twice.
    """
    return kind(**{**dict(request), **_MEASURED, **(own or {}), **fields})


def unmeasured(reason: Exception | str, kind: str = VERIFIER_ERROR) -> dict[str, Any]:
    """The fields of a verdict that says nothing about the model: reward 0, masked, with the failure's kind and reason.

    An error that names its own `failure_kind` keeps it.
    """
    named = getattr(reason, "failure_kind", None)
    failure_kind = named if isinstance(named, str) else kind
    return {"reward": 0.0, "mask_sample": True, "failure_kind": failure_kind, "failure_reason": str(reason)}
