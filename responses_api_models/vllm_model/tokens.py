"""Exact token ids and log-probabilities, from wherever an engine puts them.

Arrays are handed on by reference and not looked through: they are as long as a model's context.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from responses_api_models.vllm_model.errors import MissingTokens

_TOKEN_ID = "token_id:"
_BUNDLE = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")


@dataclass(slots=True)
class Tokens:
    """`prompt` is None when the engine didn't say and `/tokenize` has to be asked."""

    prompt: list[int] | None
    generation: list[int]
    logprobs: list[float]
    routed_experts: Any = None

    def put_on(self, message: dict[str, Any]) -> None:
        """Makes a chat message the training variant."""
        message["prompt_token_ids"] = self.prompt
        message["generation_token_ids"] = self.generation
        message["generation_log_probs"] = self.logprobs
        if self.routed_experts is not None:
            message["routed_experts"] = self.routed_experts


def take_chat_tokens(completion: dict[str, Any]) -> Tokens:
    """Removes the first choice's tokens from a chat completion. Raises MissingTokens."""
    choice, message = completion["choices"][0], completion["choices"][0]["message"]
    prompt, generation = _take_ids(completion, choice)
    logprobs = choice.pop("logprobs", None)
    experts = _take_experts(message, choice)
    own = {name: message.pop(name) for name in _BUNDLE if message.get(name) is not None}
    if own:
        tokens = _from_message(own, prompt, generation)
    else:
        tokens = Tokens(prompt, *_parse((logprobs or {}).get("content"), "logprobs.content"))
        _agree(generation, tokens.generation, "token_ids", "the ids in logprobs")
    tokens.routed_experts = experts
    if len(tokens.generation) != len(tokens.logprobs):
        raise MissingTokens(f"{len(tokens.generation)} token ids came with {len(tokens.logprobs)} log-probabilities.")
    return tokens


def take_completion_tokens(choice: dict[str, Any], completion: dict[str, Any]) -> Tokens:
    """Removes the tokens of a text completion's choice. Raises MissingTokens."""
    prompt, generation = _take_ids(completion, choice)
    logprobs = choice.pop("logprobs", None) or {}
    names, values = logprobs.get("tokens"), logprobs.get("token_logprobs")
    if not isinstance(names, list) or not isinstance(values, list) or len(names) != len(values):
        raise MissingTokens(_no_logprobs("logprobs.tokens"))
    ids, floats = _parse([{"token": n, "logprob": v} for n, v in zip(names, values, strict=True)], "logprobs.tokens")
    _agree(generation, ids, "token_ids", "the ids in logprobs")
    return Tokens(prompt, ids, floats, _take_experts(choice))


def _take_ids(completion: dict[str, Any], choice: dict[str, Any]) -> tuple[list[int] | None, list[int] | None]:
    """Prompt and generation ids as vLLM returns them with `return_token_ids`; both or neither."""
    prompts = [place.pop("prompt_token_ids", None) for place in (completion, choice)]
    prompt = next((ids for ids in prompts if ids is not None), None)
    generation = choice.pop("token_ids", None)
    if (prompt is None) != (generation is None):
        have, lack = ("prompt_token_ids", "token_ids") if generation is None else ("token_ids", "prompt_token_ids")
        raise MissingTokens(f"The engine returned {have} without {lack}.")
    return prompt, generation


def _from_message(own: dict[str, Any], prompt: list[int] | None, generation: list[int] | None) -> Tokens:
    if len(own) < len(_BUNDLE):
        missing = ", ".join(name for name in _BUNDLE if name not in own)
        raise MissingTokens(f"The engine's message has {', '.join(own)} but not {missing}.")
    _agree(prompt, own["prompt_token_ids"], "prompt_token_ids of the response", "those of the message")
    _agree(generation, own["generation_token_ids"], "token_ids of the choice", "those of the message")
    return Tokens(own["prompt_token_ids"], own["generation_token_ids"], own["generation_log_probs"])


def _parse(entries: Any, place: str) -> tuple[list[int], list[float]]:
    if not isinstance(entries, list):
        raise MissingTokens(_no_logprobs(place))
    try:
        skip = len(_TOKEN_ID)
        ids = [int(entry["token"][skip:]) for entry in entries if entry["token"].startswith(_TOKEN_ID)]
        logprobs = [float(entry["logprob"]) for entry in entries]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MissingTokens(f"{place} of the engine's answer can't be read: {error!r}.") from error
    if len(ids) != len(entries):
        raise MissingTokens(
            f"{place} names tokens by text instead of `token_id:<int>`: the engine doesn't honour "
            "return_tokens_as_token_ids, so return_token_id_information can't be used with it."
        )
    return ids, logprobs


def _no_logprobs(place: str) -> str:
    return (
        f"The engine's answer has no {place}, so there are no token ids to return. Use an engine that returns them, "
        "or set return_token_id_information to false."
    )


def _agree(first: list[int] | None, second: list[int], first_name: str, second_name: str) -> None:
    if first is not None and first != second:
        raise MissingTokens(f"{first_name} and {second_name} disagree ({len(first)} and {len(second)} ids).")


def _take_experts(*places: dict[str, Any]) -> Any:
    values = [place.pop("routed_experts", None) for place in places]
    return next((value for value in values if value is not None), None)
