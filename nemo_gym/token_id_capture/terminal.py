"""Which captured call a rollout ended with, by all that bears witness of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Literal, TypeAlias

from nemo_gym.token_id_capture.canonical import is_assistant_authored
from nemo_gym.token_id_capture.fingerprints import assistant_fingerprint
from nemo_gym.token_id_capture.records import TokenEntry
from nemo_gym.token_id_capture.responses import response_to_output_items

AttributionMethod: TypeAlias = Literal["explicit", "declared", "response_id", "content", "none"]


@dataclass(frozen=True)
class TerminalAttribution:
    """The call, by which witness, and why; no call when there is no witness or they disagree.

    `is_declared` says that somebody named a call, be it one that exists or not.
    """

    method: AttributionMethod
    call_id: str | None
    reason: str
    is_declared: bool = False


@dataclass(frozen=True)
class _Testimony:
    method: AttributionMethod
    candidates: list[TokenEntry]


def resolve_terminal(
    entries: list[TokenEntry],
    response: dict[str, Any] | None,
    explicit_call_id: str | None = None,
    *,
    declared_response_id: str | None = None,
) -> TerminalAttribution:
    """The call that the rollout's final `response` came from.

    Witnesses: the call id that was given, the response id that was declared, the response's own id, and what it says.
    All that speak have to agree, or to mean calls of the very same tokens.
    """
    declared = explicit_call_id is not None or declared_response_id is not None
    testimonies = []
    if explicit_call_id is not None:
        found = [entry for entry in entries if entry.model_call_id == explicit_call_id]
        if not found:
            return TerminalAttribution("none", None, "explicit_call_not_captured", True)
        testimonies.append(_Testimony("explicit", found[:1]))
    if declared_response_id is not None:
        found = _with_response_id(entries, declared_response_id)
        if len(found) != 1:
            reason = "declared_response_ambiguous" if found else "declared_response_not_captured"
            return TerminalAttribution("none", None, reason, True)
        testimonies.append(_Testimony("declared", found))
    testimonies += _response_testimonies(entries, response or {})
    return _verdict(testimonies, declared)


def _response_testimonies(entries: list[TokenEntry], response: Mapping[str, Any]) -> list[_Testimony]:
    by_id = _with_response_id(entries, response.get("id"))
    testimonies = [_Testimony("response_id", by_id)] if len(by_id) == 1 else []
    if said := _that_said(entries, response_to_output_items(response)):
        testimonies.append(_Testimony("content", said))
    return testimonies


def _with_response_id(entries: list[TokenEntry], response_id: Any) -> list[TokenEntry]:
    return [entry for entry in entries if response_id and entry.response_id == response_id]


def _that_said(entries: list[TokenEntry], output: list[dict[str, Any]]) -> list[TokenEntry]:
    """The calls after which the model had said just this; else those that said it; else its last words."""
    whole, last_words = assistant_fingerprint(output), assistant_fingerprint(_trailing_words(output))
    tests: list[Callable[[TokenEntry], bool]] = [
        lambda entry: entry.continuation_fingerprint == whole,
        lambda entry: assistant_fingerprint(entry.output_items) == whole,
        lambda entry: assistant_fingerprint(entry.output_items) == last_words,
    ]
    for fingerprint, test in zip((whole, whole, last_words), tests, strict=True):
        if fingerprint and (found := [entry for entry in entries if test(entry)]):
            return found
    return []


def _trailing_words(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the model said after the last thing said to it."""
    said = takewhile(lambda item: is_assistant_authored(item) or item.get("type") == "reasoning", reversed(output))
    return list(said)[::-1]


def _verdict(testimonies: list[_Testimony], declared: bool) -> TerminalAttribution:
    if not testimonies:
        return TerminalAttribution("none", None, "no_witness", declared)
    agreed = testimonies[0].candidates
    for testimony in testimonies[1:]:
        sequences = {_sequence(entry) for entry in testimony.candidates}
        agreed = [entry for entry in agreed if _sequence(entry) in sequences]
    if not agreed:
        return TerminalAttribution("none", None, "witnesses_disagree", declared)
    if len({_sequence(entry) for entry in agreed}) > 1:
        return TerminalAttribution("none", None, "ambiguous_content", declared)
    chosen = min(agreed, key=lambda entry: entry.model_call_id)
    return TerminalAttribution(testimonies[0].method, chosen.model_call_id, "attributed", declared)


def _sequence(entry: TokenEntry) -> tuple[Any, ...]:
    """What makes two calls the same to a trainer: their tokens; without a digest, only the call itself."""
    return ("digest", entry.digest, entry.cum_len) if entry.digest else ("call", entry.model_call_id)
