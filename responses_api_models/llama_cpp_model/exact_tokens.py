"""Which tokens a chat completion was made of, and how probable the model found each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

Body = dict[str, Any]
Post = Callable[[str, Body], Awaitable[Body]]

_LIKELY_ENOUGH = 64
_WHOLE_VOCABULARY = 1_000_000
_CERTAIN = 1000.0


@dataclass(frozen=True)
class ExactTokens:
    """Ids of the prompt, and of everything sampled, end of text and stop strings included."""

    prompt: list[int]
    generation: list[int]
    logprobs: list[float]


def asking_for_tokens(body: Body) -> Body:
    """The request with which the engine reports its prompt and every token it sampled."""
    return {**body, "verbose": True, "return_tokens": True, "logprobs": True}


async def take_exact_tokens(completion: Body, post: Post) -> ExactTokens:
    """Takes the report out of a completion; `post` asks the engine what it left out.

    The engine reports no log-probability for the pieces of a character that takes several tokens, nor for stop
    strings: those are had by showing the model the text up to there.
    """
    report = completion.pop("__verbose")
    generation: list[int] = report["tokens"]
    prompt = await tokenize(report["prompt"], post)
    entries = (completion["choices"][0].get("logprobs") or {}).get("content") or []
    known = 0
    while known < min(len(entries), len(generation)) and entries[known]["id"] == generation[known]:
        known += 1
    logprobs = [float(entry["logprob"]) for entry in entries[:known]]
    if known < len(generation):
        logprobs += await _score(prompt, generation, known, post)
    return ExactTokens(prompt, generation, logprobs)


async def tokenize(text: str, post: Post) -> list[int]:
    """The tokens of a rendered prompt."""
    answer = await post("/tokenize", {"content": text, "add_special": True, "parse_special": True})
    ids: list[int] = answer["tokens"]
    return ids


async def _score(prompt: list[int], generation: list[int], start: int, post: Post) -> list[float]:
    """Log-probabilities of the tokens from `start` on, one by one.

    The engine lists them with the next token it generates. That is forced to be a plain letter, since for a piece of
    a character it would list nothing.
    """
    letter = (await post("/tokenize", {"content": "a"}))["tokens"][0]
    scores = []
    for index in range(start, len(generation)):
        request: Body = {"prompt": prompt + generation[:index], "n_predict": 1, "logit_bias": [[letter, _CERTAIN]]}
        # The first is computed afresh, whatever the engine did before, so that the same request scores the same.
        request |= {"temperature": 0, "cache_prompt": index > start}
        scores.append(await _score_of(generation[index], request, post))
    return scores


async def _score_of(token: int, request: Body, post: Post) -> float:
    for listed in (_LIKELY_ENOUGH, _WHOLE_VOCABULARY):
        answer = await post("/completion", {**request, "n_probs": listed})
        for entry in answer["completion_probabilities"][0]["top_logprobs"]:
            if entry["id"] == token:
                return float(entry["logprob"])
    raise LookupError(f"the engine sampled token {token}, which it doesn't list")
