"""Token usage: what is unknown stays null instead of becoming zero."""

from collections.abc import Iterable
from typing import Any, Self

from nemo_gym.schema.wire import WireModel


class NeMoGymResponseInputTokensDetails(WireModel):
    """How many of the input tokens came from a cache; null if nobody said."""

    cached_tokens: int | None


class NeMoGymResponseOutputTokensDetails(WireModel):
    """How many of the output tokens were reasoning; null if nobody said."""

    reasoning_tokens: int | None


class NeMoGymResponseUsage(WireModel):
    """Tokens of one response, or of several summed."""

    input_tokens: int
    input_tokens_details: NeMoGymResponseInputTokensDetails
    output_tokens: int
    output_tokens_details: NeMoGymResponseOutputTokensDetails
    total_tokens: int

    @classmethod
    def sum_from_list(cls, usages: Iterable["NeMoGymResponseUsage"]) -> Self:
        """The sum, starting at zero. A null detail makes its sum null; extra numbers are summed where present."""
        total: dict[str, Any] = {
            "input_tokens": 0,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 0,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 0,
        }
        declared = _declared_keys(total)
        for usage in usages:
            _add(total, usage.model_dump(), declared)
        return cls.model_validate(total)


def _declared_keys(total: dict[str, Any]) -> frozenset[str]:
    nested = (key for value in total.values() if isinstance(value, dict) for key in value)
    return frozenset((*total, *nested))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _add(total: dict[str, Any], addend: dict[str, Any], declared: frozenset[str]) -> None:
    for key, value in addend.items():
        known = total.get(key)
        if isinstance(known, dict) and isinstance(value, dict):
            _add(known, value, declared)
        elif _is_number(known) and _is_number(value):
            total[key] = known + value
        elif key in declared:
            total[key] = None
        elif known is None:
            total[key] = value


def accumulate_response_usage(
    total: NeMoGymResponseUsage | None, additional: NeMoGymResponseUsage | None
) -> NeMoGymResponseUsage | None:
    """The sum of two usages either of which may be unknown; never shares objects with its arguments."""
    if total is None or additional is None:
        known = total or additional
        return known.model_copy(deep=True) if known else None
    return type(total).sum_from_list([total, additional])
