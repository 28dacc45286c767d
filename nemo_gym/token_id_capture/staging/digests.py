"""Hashes of staged calls. Every number is big-endian; workers in other languages have to come to the same bytes."""

from __future__ import annotations

import hashlib
import math
import struct
import sys
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from nemo_gym.token_id_capture.tokens import encode_length, encode_token_ids

SCHEMA_VERSION = 2
DIGEST_VERSION = 2
EXTRAS_DIGEST_VERSION = 1

_PREFIX_DOMAIN = b"nemo-gym-staging-prefix-v2"
_CHAIN_DOMAIN = b"nemo-gym-staging-chain-v1"
_EXTRAS_DOMAIN = b"nemo-gym-staging-extras-v1"
_CALL_DOMAIN = b"nemo-gym-staging-call-v2"


def hash_token_ids(token_ids: Sequence[int]) -> str:
    """SHA-256 of all tokens up to some point."""
    return hashlib.sha256(_PREFIX_DOMAIN + encode_token_ids(token_ids)).hexdigest()


def compute_chain_hash(parent_chain_hash: str | None, token_ids_delta: Sequence[int]) -> str:
    """SHA-256 of a call's own tokens on top of its parent's hash."""
    return hashlib.sha256(
        _CHAIN_DOMAIN + _optional_hash(parent_chain_hash) + encode_token_ids(token_ids_delta)
    ).hexdigest()


def compute_extras_digest(extras: Mapping[str, Any] | None) -> str:
    """SHA-256 of what a worker adds to a call. Raises ValueError for values that aren't JSON's, NaN included."""
    return hashlib.sha256(_EXTRAS_DOMAIN + bytes([EXTRAS_DIGEST_VERSION]) + _encode_value(extras)).hexdigest()


def compute_call_digest(
    *,
    rollout_id: str,
    model_call_id: str,
    parent_call_id: str | None,
    mode: str,
    prev_len: int,
    delta_len: int,
    cum_len: int,
    weight_version: int,
    token_ids_delta: Sequence[int],
    token_mask_delta: Sequence[float],
    generation_log_probs_delta: Sequence[float],
    extras_digest: str,
    chain_hash: str | None,
    cumulative_hash: str | None,
) -> str:
    """SHA-256 of a whole staged call."""
    return hashlib.sha256(
        b"".join(
            (
                _CALL_DOMAIN,
                bytes([SCHEMA_VERSION, DIGEST_VERSION, EXTRAS_DIGEST_VERSION]),
                _encode_text(rollout_id),
                _encode_text(model_call_id),
                b"\x00" if parent_call_id is None else b"\x01" + _encode_text(parent_call_id),
                _encode_text(mode),
                *(encode_length(number) for number in (prev_len, delta_len, cum_len, weight_version)),
                _with_length(encode_token_ids(token_ids_delta)),
                _with_length(_encode_floats(token_mask_delta)),
                _with_length(_encode_floats(generation_log_probs_delta)),
                bytes.fromhex(extras_digest),
                _optional_hash(chain_hash),
                _optional_hash(cumulative_hash),
            )
        )
    ).hexdigest()


def _optional_hash(value: str | None) -> bytes:
    return b"\x00" if value is None else b"\x01" + bytes.fromhex(value)


def _with_length(data: bytes) -> bytes:
    return encode_length(len(data)) + data


def _encode_text(text: str) -> bytes:
    return _with_length(text.encode("utf-8"))


def _encode_floats(values: Sequence[float]) -> bytes:
    """The count, then each as a 32-bit float."""
    floats = array("f", values)
    if sys.byteorder == "little":
        floats.byteswap()
    return encode_length(len(values)) + floats.tobytes()


def _encode_value(value: Any) -> bytes:
    if value is None:
        return b"N"
    if isinstance(value, bool):
        return b"B" + bytes([value])
    if isinstance(value, int):
        return b"I" + _encode_integer(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"extras can't hold {value}")
        return b"F" + struct.pack(">d", value)
    if isinstance(value, str):
        return b"S" + _encode_text(value)
    if isinstance(value, list | tuple):
        return b"L" + encode_length(len(value)) + b"".join(map(_encode_value, value))
    if isinstance(value, Mapping):
        return b"D" + encode_length(len(value)) + b"".join(_encode_pairs(value))
    raise ValueError(f"extras can't hold a {type(value).__name__}")


def _encode_integer(value: int) -> bytes:
    try:
        return struct.pack(">q", value)
    except struct.error as error:
        raise ValueError(f"extras can't hold {value}: it doesn't fit 64 bits") from error


def _encode_pairs(value: Mapping[Any, Any]) -> list[bytes]:
    if not all(isinstance(key, str) for key in value):
        raise ValueError("the keys of extras must be text")
    ordered = sorted(value, key=lambda key: key.encode("utf-8"))
    return [_encode_text(key) + _encode_value(value[key]) for key in ordered]
