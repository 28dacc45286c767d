"""Training token bundles: three arrays that come together or not at all, plus opaque expert routing."""

from collections.abc import Mapping
from typing import Annotated, Any, NotRequired

from pydantic import AfterValidator, BaseModel
from typing_extensions import TypedDict

REQUIRED_TOKEN_METADATA_FIELDS = frozenset({"prompt_token_ids", "generation_token_ids", "generation_log_probs"})
TOKEN_METADATA_FIELDS = REQUIRED_TOKEN_METADATA_FIELDS | {"routed_experts"}


def _opaque_routing(value: Any) -> Any:
    """Checks the outermost type only: routing tables are as long as the sequence, and nobody here reads them."""
    if value is None or isinstance(value, str | list):
        return value
    raise ValueError("routed_experts must be a string, a nested list of integers or null")


# Declared as what it is, validated as what it costs: see _opaque_routing.
RoutedExperts = Annotated[Any, AfterValidator(_opaque_routing)]


class TokenIDLogProbMixin(BaseModel):
    """Tokens of one model call: the whole prompt, what was generated, and one log-probability per generated token."""

    prompt_token_ids: list[int]
    generation_token_ids: list[int]
    generation_log_probs: list[float]
    routed_experts: RoutedExperts = None


class TokenIDLogProbTypedDictMixin(TypedDict):
    """The same bundle on a Chat Completions message."""

    prompt_token_ids: list[int]
    generation_token_ids: list[int]
    generation_log_probs: list[float]
    routed_experts: NotRequired[RoutedExperts]


def has_token_bundle(data: Mapping[str, Any]) -> bool:
    """True if all three required arrays are there."""
    if TOKEN_METADATA_FIELDS.isdisjoint(data):
        return False
    return all(data.get(field) is not None for field in REQUIRED_TOKEN_METADATA_FIELDS)


def require_whole_bundle(data: Any) -> Any:
    """Refuses half a token bundle. A bundle of nulls only is no bundle and is left out.

    Raises ValueError naming the missing fields.
    """
    if (type(data) is not dict and not isinstance(data, Mapping)) or TOKEN_METADATA_FIELDS.isdisjoint(data):
        return data
    missing = sorted(field for field in REQUIRED_TOKEN_METADATA_FIELDS if data.get(field) is None)
    if not missing:
        return data
    if any(data.get(field) is not None for field in TOKEN_METADATA_FIELDS):
        raise ValueError(f"token fields come together or not at all; missing: {', '.join(missing)}")
    return {key: value for key, value in data.items() if key not in TOKEN_METADATA_FIELDS}
