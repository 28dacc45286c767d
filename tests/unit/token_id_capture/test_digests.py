"""Encodings and hashes, against the vectors that every implementation has to come to."""

import hashlib
import struct

import pytest

from nemo_gym.token_id_capture.staging.conformance import differing_vectors, golden_vectors
from nemo_gym.token_id_capture.staging.digests import compute_chain_hash, compute_extras_digest, hash_token_ids
from nemo_gym.token_id_capture.tokens import compute_digest, encode_token_ids


def test_golden_vectors_are_met() -> None:
    assert differing_vectors() == []


def test_golden_vectors_are_those_of_the_contract() -> None:
    vectors = golden_vectors()
    assert vectors["extras"]["digest"] == "032024e899456be6e9a78c6d0399c5112d2ca7fa18d4ea9cf0d8cb7d0094f3a3"
    assert vectors["no_extras"]["digest"] == "a1edc33c107616cf344faf0103daa025cfb125f8e1c784ae5f6a49faf2b768b6"
    assert vectors["call"]["digest"] == "1122c7fe7e914c809eb9b1c09b26d94a50c1eb2790e7430fbcd8363b846ccf27"


def test_token_ids_are_encoded_as_a_count_and_big_endian_numbers() -> None:
    assert encode_token_ids([1, 2**40]) == struct.pack(">QQQ", 2, 1, 2**40)


@pytest.mark.parametrize("bad", [[-1], [1.5], [2**64], ["1"]])
def test_other_token_ids_are_refused(bad: list[int]) -> None:
    with pytest.raises(ValueError, match="token ids"):
        encode_token_ids(bad)


def test_a_digest_is_over_domain_version_and_encoding() -> None:
    expected = hashlib.sha256(b"nemo-gym-tokens\x01" + struct.pack(">QQQ", 2, 7, 8)).hexdigest()
    assert compute_digest([7, 8]) == expected


def test_the_digest_of_no_tokens_is_over_the_domain_alone() -> None:
    assert compute_digest([]) == hashlib.sha256(b"nemo-gym-tokens").hexdigest()


def test_a_prefix_hash_is_over_its_domain_and_the_encoding() -> None:
    expected = hashlib.sha256(b"nemo-gym-staging-prefix-v2" + struct.pack(">QQ", 1, 5)).hexdigest()
    assert hash_token_ids([5]) == expected


def test_a_chain_hash_builds_on_its_parent() -> None:
    root = hashlib.sha256(b"nemo-gym-staging-chain-v1\x00" + struct.pack(">QQ", 1, 5)).digest()
    child = hashlib.sha256(b"nemo-gym-staging-chain-v1\x01" + root + struct.pack(">QQ", 1, 6)).hexdigest()
    assert compute_chain_hash(None, [5]) == root.hex()
    assert compute_chain_hash(root.hex(), [6]) == child


def test_extras_are_typed_and_their_keys_sorted() -> None:
    assert compute_extras_digest({"b": 1, "a": True}) == compute_extras_digest({"a": True, "b": 1})
    digests = {compute_extras_digest({"a": value}) for value in (True, 1, 1.0, "1", [1], {"1": 1}, None)}
    assert len(digests) == 7


def test_the_keys_of_extras_come_in_the_order_of_their_bytes() -> None:
    pairs = struct.pack(">Q", 1) + b"a" + b"N" + struct.pack(">Q", 2) + "é".encode() + b"B\x01"
    expected = hashlib.sha256(b"nemo-gym-staging-extras-v1\x01D" + struct.pack(">Q", 2) + pairs).hexdigest()
    assert compute_extras_digest({"é": True, "a": None}) == expected


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 2**63, {1: 2}, {1, 2}, b"x"])
def test_other_extras_are_refused(bad: object) -> None:
    with pytest.raises(ValueError, match="extras"):
        compute_extras_digest({"a": bad})
