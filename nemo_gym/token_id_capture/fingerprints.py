"""Fingerprints of conversations: what the model has said so far, and all that was said."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nemo_gym.token_id_capture.canonical import (
    Call,
    CallResult,
    Part,
    canonical_json,
    is_assistant_authored,
    role_or_type,
    segments,
)
from nemo_gym.token_id_capture.tokens import encode_length

FINGERPRINT_VERSION = 2
LINEAGE_DOMAIN = b"nemo-gym-lineage"
CONTEXT_DOMAIN = b"nemo-gym-lineage-context"
ENVELOPE_ROLE = "_ng_request_envelope"

Item = Mapping[str, Any]


def assistant_fingerprint(items: Iterable[Item]) -> str:
    """SHA-256 over the words and calls of the model among the items, in order; "" when there are none."""
    authored = [item for item in items if is_assistant_authored(item)]
    if not authored:
        return ""
    digest = hashlib.sha256(LINEAGE_DOMAIN)
    for item in authored:
        for segment in segments(item):
            if isinstance(segment, Part):
                _add(digest, 0x00, segment.type, segment.payload)
            elif isinstance(segment, Call):
                _add(digest, 0x02, segment.id, segment.name, segment.arguments)
    return digest.hexdigest()


def conversation_digest(items: Iterable[Item]) -> str:
    """SHA-256 over all the items, in order."""
    digest = hashlib.sha256(CONTEXT_DOMAIN)
    for item in items:
        _add(digest, 0x00, role_or_type(item))
        for segment in segments(item):
            if isinstance(segment, Part):
                _add(digest, 0x01, segment.type, segment.payload)
            elif isinstance(segment, Call):
                _add(digest, 0x03, segment.id, segment.name, segment.arguments)
            elif isinstance(segment, CallResult):
                _add(digest, 0x06, segment.id, segment.payload)
    return digest.hexdigest()


def _add(digest: Any, first_tag: int, *fields: str) -> None:
    """Fields under consecutive tags: tag, length in bytes, UTF-8."""
    for tag, field in enumerate(fields, first_tag):
        data = field.encode("utf-8", "surrogatepass")
        digest.update(bytes([tag]) + encode_length(len(data)) + data)


def with_envelope(items: Sequence[Item], *, instructions: Any = None, tools: Any = None) -> list[dict[str, Any]]:
    """The items of a request, behind one that stands for its instructions and tools."""
    envelope = {key: value for key, value in (("instructions", instructions), ("tools", tools)) if value}
    head = [{"role": ENVELOPE_ROLE, "content": canonical_json(envelope)}] if envelope else []
    return [*head, *(dict(item) for item in items)]
