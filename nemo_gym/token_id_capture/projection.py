"""A chain of calls as one Responses object, whose items carry the tokens that a trainer reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nemo_gym.schema.token_fields import TOKEN_METADATA_FIELDS
from nemo_gym.token_id_capture.records import TokenEntry


def project_main_chain_response(rollout_id: str, chain: list[TokenEntry], *, model: str = "") -> dict[str, Any]:
    """The response of a chain. The prompt of every generated item begins with all the tokens before it.

    Raises AssertionError where it doesn't.
    """
    output = [item for entry in chain for item in _items_with_tokens(entry)]
    assert_prefix_contiguity(output)
    prompt = sum(len(entry.prompt_token_ids) for entry in chain)
    generated = sum(len(entry.generation_token_ids) for entry in chain)
    return {
        "id": f"proj-{rollout_id}",
        "object": "response",
        "model": model or next((entry.model for entry in chain if entry.model), ""),
        "output": output,
        "usage": {"input_tokens": prompt, "output_tokens": generated, "total_tokens": prompt + generated},
    }


def _items_with_tokens(entry: TokenEntry) -> list[dict[str, Any]]:
    items = [dict(item) for item in entry.output_items] or [{"type": "message", "role": "assistant", "content": []}]
    carrier = items[-1 if entry.token_item_index is None else entry.token_item_index]
    carrier["prompt_token_ids"] = entry.prompt_token_ids
    carrier["generation_token_ids"] = entry.generation_token_ids
    carrier["generation_log_probs"] = entry.generation_log_probs
    if entry.routed_experts is not None:
        carrier["routed_experts"] = entry.routed_experts
    return items


def assert_prefix_contiguity(output: Iterable[Mapping[str, Any]]) -> None:
    """Raises AssertionError when a prompt doesn't begin with all the tokens seen before it."""
    seen: list[int] = []
    for index, item in enumerate(output):
        generation = item.get("generation_token_ids")
        if not generation:
            continue
        prompt = item["prompt_token_ids"]
        if prompt[: len(seen)] != seen:
            raise AssertionError(f"non-contiguous: the prompt of output item {index} drops tokens that came before it")
        seen = [*prompt, *generation]


def carries_tokens(output: Any) -> bool:
    """Whether output items carry tokens already."""
    if not isinstance(output, list):
        return False
    return any(item.get(name) for item in output if isinstance(item, Mapping) for name in TOKEN_METADATA_FIELDS)
