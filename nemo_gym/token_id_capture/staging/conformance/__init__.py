"""Digests that every implementation of staging has to come to."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from nemo_gym.token_id_capture.staging.digests import compute_call_digest, compute_extras_digest


def golden_vectors() -> dict[str, Any]:
    """Inputs with the digest of each, by name."""
    vectors: dict[str, Any] = json.loads((files(__name__) / "golden_vectors.json").read_text(encoding="utf-8"))
    return vectors


def differing_vectors() -> list[str]:
    """The names of vectors that this implementation does not come to; none, if it is right."""
    vectors = golden_vectors()
    computed = {
        "extras": compute_extras_digest(vectors["extras"]["input"]),
        "no_extras": compute_extras_digest(vectors["no_extras"]["input"]),
        "call": compute_call_digest(**vectors["call"]["input"]),
    }
    return [name for name, digest in computed.items() if digest != vectors[name]["digest"]]
