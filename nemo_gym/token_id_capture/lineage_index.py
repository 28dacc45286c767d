"""Which of the calls seen so far a request continues, told by content alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from nemo_gym.token_id_capture.fingerprints import FINGERPRINT_VERSION, assistant_fingerprint, conversation_digest
from nemo_gym.token_id_capture.records import TokenEntry

NO_MATCH = "no_match"
AMBIGUOUS = "ambiguous"
LOOKUP_ERROR = "lookup_error"
RESOLVER_UNAVAILABLE = "resolver_unavailable"


@dataclass(frozen=True, slots=True)
class LineageNode:
    """What is remembered of a call: how its continuation is told, and what its tokens come to. `ref` finds the rest."""

    model_call_id: str
    fingerprint: str
    fingerprint_version: int | None
    context_len: int
    context_digest: str
    digest: str
    cum_len: int
    parent_call_id: str | None = None
    is_delta: bool = False
    ref: Any = None

    @classmethod
    def of(cls, entry: TokenEntry, ref: Any = None) -> LineageNode:
        return cls(
            model_call_id=entry.model_call_id,
            fingerprint=entry.continuation_fingerprint,
            fingerprint_version=entry.fingerprint_version,
            context_len=entry.continuation_context_len,
            context_digest=entry.continuation_context_digest,
            digest=entry.digest or "",
            cum_len=entry.cum_len or 0,
            parent_call_id=entry.parent_call_id,
            is_delta=entry.prompt_is_delta,
            ref=ref,
        )


@dataclass
class LineageIndex:
    """The calls of one rollout by id, and by the fingerprint of what the model had said when they ended."""

    nodes: dict[str, LineageNode] = field(default_factory=dict)
    _by_fingerprint: dict[str, list[LineageNode]] = field(default_factory=dict)

    def add(self, node: LineageNode) -> None:
        if node.model_call_id not in self.nodes:
            self.nodes[node.model_call_id] = node
            self._by_fingerprint.setdefault(node.fingerprint, []).append(node)

    def parent_of(self, request_items: list[dict[str, Any]]) -> LineageNode | str | None:
        """The call that a request continues; None when it begins a conversation, else why it can't be told.

        Several calls that came to the very same tokens are one: the smallest id stands for them.
        """
        fingerprint = assistant_fingerprint(request_items)
        if not fingerprint:
            return None
        known = _ContextDigests(request_items)
        matches = [node for node in self._by_fingerprint.get(fingerprint, ()) if _continues(node, known)]
        if not matches:
            return NO_MATCH
        if len({(node.digest, node.cum_len) for node in matches}) > 1:
            return AMBIGUOUS
        return min(matches, key=lambda node: node.model_call_id)

    def path_to_whole(self, node: LineageNode) -> Iterator[LineageNode]:
        """From a call back to the nearest one whose whole prompt was kept. Raises KeyError where that is missing."""
        while node.is_delta and node.parent_call_id is not None:
            yield node
            node = self.nodes[node.parent_call_id]
        yield node


class _ContextDigests:
    """Digests of the leading items of a request, each computed once."""

    def __init__(self, items: list[dict[str, Any]]) -> None:
        self._items = items
        self._known: dict[int, str] = {}

    def of_first(self, count: int) -> str | None:
        if count > len(self._items):
            return None
        if count not in self._known:
            self._known[count] = conversation_digest(self._items[:count])
        return self._known[count]


def _continues(node: LineageNode, known: _ContextDigests) -> bool:
    same_version = node.fingerprint_version == FINGERPRINT_VERSION
    return same_version and known.of_first(node.context_len) == node.context_digest


def index_of(nodes: Iterable[LineageNode]) -> LineageIndex:
    index = LineageIndex()
    for node in nodes:
        index.add(node)
    return index
