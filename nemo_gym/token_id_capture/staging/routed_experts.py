"""Which experts served each token, as one string: `nrlre1:<dtype>:<tokens>x<layers>x<topk>:<base64 little endian>`."""

from __future__ import annotations

import base64
import binascii
import re
import sys
from array import array
from typing import Any, Literal, TypeAlias

ExpertsDtype: TypeAlias = Literal["int8", "int16", "int32"]
RoutedExperts: TypeAlias = list[list[list[int]]]

_ENVELOPE = re.compile(r"nrlre1:(int8|int16|int32):(\d+)x(\d+)x(\d+):([A-Za-z0-9+/=]*)")
_TYPECODES = {"int8": "b", "int16": "h", "int32": "i"}


def encode_routed_experts(experts: RoutedExperts, dtype: ExpertsDtype = "int16") -> str:
    """The envelope of a [tokens][layers][topk] table. Raises ValueError for a ragged one or numbers out of range."""
    tokens, layers = len(experts), len(experts[0]) if experts else 0
    topk = len(experts[0][0]) if layers else 0
    if any(len(row) != layers or any(len(cell) != topk for cell in row) for row in experts):
        raise ValueError("routed experts must be a full table of tokens, layers and experts")
    try:
        numbers = array(_TYPECODES[dtype], (number for row in experts for cell in row for number in cell))
    except OverflowError as error:
        raise ValueError(f"routed experts don't fit {dtype}: {error}") from error
    if sys.byteorder == "big":
        numbers.byteswap()
    return f"nrlre1:{dtype}:{tokens}x{layers}x{topk}:{base64.b64encode(numbers.tobytes()).decode('ascii')}"


def decode_routed_experts(value: Any) -> RoutedExperts:
    """The table of an envelope, or of nested lists. Raises ValueError for anything else."""
    if isinstance(value, list):
        encode_routed_experts(value, "int32")
        return value
    match = _ENVELOPE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("routed experts must be nested lists or an nrlre1 envelope")
    dtype, tokens, layers, topk = match[1], int(match[2]), int(match[3]), int(match[4])
    numbers = array(_TYPECODES[dtype])
    try:
        numbers.frombytes(base64.b64decode(match[5], validate=True))
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"the data of the nrlre1 envelope can't be read: {error}") from error
    if len(numbers) != tokens * layers * topk:
        raise ValueError(f"the nrlre1 envelope holds {len(numbers)} numbers, not {tokens}x{layers}x{topk}")
    if sys.byteorder == "big":
        numbers.byteswap()
    flat = iter(numbers)
    return [[[next(flat) for _ in range(topk)] for _ in range(layers)] for _ in range(tokens)]
