"""vLLM's chat completions."""

from __future__ import annotations

from typing import Any

TOKEN_ID_PREFIX = "token_id:"
REQUIRED_PREFIX_FIELD = "required_prefix_token_ids"


class VLLMCaptureAdapter:
    """Reads tokens from the message, else from the choice and the response, else from the log-probabilities."""

    def enter_prefix(self, request_payload: dict[str, Any], prefix_ids: list[int]) -> dict[str, Any]:
        """A copy of the request whose prompt has to begin with these tokens."""
        return {**request_payload, REQUIRED_PREFIX_FIELD: list(prefix_ids)}

    def extract_prompt_ids(self, response_payload: dict[str, Any]) -> list[int]:
        """The prompt's tokens. Raises ValueError when the answer doesn't carry them."""
        message, choice = _first_choice(response_payload)
        for place in (message, choice, response_payload):
            if place.get("prompt_token_ids") is not None:
                return list(place["prompt_token_ids"])
        raise ValueError("the engine's answer has no prompt_token_ids")

    def extract_generation(self, response_payload: dict[str, Any]) -> tuple[list[int], list[float]]:
        """The generated tokens with their log-probabilities. Raises ValueError when the answer doesn't carry them."""
        message, choice = _first_choice(response_payload)
        if message.get("generation_token_ids") is not None:
            return list(message["generation_token_ids"]), [float(x) for x in message.get("generation_log_probs") or ()]
        entries = (choice.get("logprobs") or {}).get("content")
        if not isinstance(entries, list):
            raise ValueError("the engine's answer has no logprobs.content")
        logprobs = [float(entry["logprob"]) for entry in entries]
        if choice.get("token_ids") is not None:
            return list(choice["token_ids"]), logprobs
        return [_token_id(entry["token"]) for entry in entries], logprobs

    def extract_extras(self, response_payload: dict[str, Any]) -> dict[str, Any] | None:
        """The routed experts, where the engine tells them."""
        for place in (*_first_choice(response_payload), response_payload):
            if place.get("routed_experts") is not None:
                return {"routed_experts": place["routed_experts"]}
        return None


def _first_choice(response_payload: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    choices = response_payload.get("choices")
    if not choices:
        raise ValueError("the engine's answer has no choices")
    return choices[0].get("message") or {}, choices[0]


def _token_id(token: str) -> int:
    if not token.startswith(TOKEN_ID_PREFIX):
        raise ValueError(f"logprobs name {token!r} instead of token_id:<int>")
    return int(token.removeprefix(TOKEN_ID_PREFIX))
