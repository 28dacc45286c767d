"""Token lists as bytes and as digests: the one encoding that every hash of tokens here is made of."""

from __future__ import annotations

import hashlib
import struct
import sys
from array import array
from collections.abc import Sequence

DIGEST_DOMAIN = b"nemo-gym-tokens"
DIGEST_VERSION = 1


def encode_token_ids(token_ids: Sequence[int]) -> bytes:
    """The count and then the ids, each as an unsigned 64-bit big-endian number. Raises ValueError for other ids."""
    try:
        ids = array("Q", token_ids)
    except (OverflowError, TypeError) as error:
        raise ValueError(f"token ids must be integers of at least 0: {error}") from error
    if sys.byteorder == "little":
        ids.byteswap()
    return encode_length(len(token_ids)) + ids.tobytes()


def encode_length(length: int) -> bytes:
    return struct.pack(">Q", length)


def compute_digest(token_ids: Sequence[int]) -> str:
    """SHA-256 of a token list, in hex."""
    if not token_ids:
        return hashlib.sha256(DIGEST_DOMAIN).hexdigest()
    return hashlib.sha256(DIGEST_DOMAIN + bytes([DIGEST_VERSION]) + encode_token_ids(token_ids)).hexdigest()
