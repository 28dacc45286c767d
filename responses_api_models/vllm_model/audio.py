"""Audio that a row names in its metadata, as parts of the user's message."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from responses_api_models.vllm_model.errors import RefusedRequest

AUDIO_KEYS = ("audio_data", "audio_path", "audio_paths")
_MEDIA_TYPES = {
    ".wav": "audio/wav",
    ".flac": "audio/flac",
    ".mp3": "audio/mpeg",
    ".m4a": "audio/mp4",
    ".ogg": "audio/ogg",
    ".opus": "audio/opus",
}


def wants_audio(metadata: Any) -> bool:
    """Whether a request's metadata names audio."""
    return isinstance(metadata, dict) and any(metadata.get(key) for key in AUDIO_KEYS)


def attach_audio(body: dict[str, Any], root: Path | None) -> None:
    """Puts the audio before the text of the last user message, and takes its key out of the metadata.

    Reads files. Raises RefusedRequest for audio that can't be had.
    """
    metadata = dict(body.get("metadata") or {})
    given = {key: metadata.pop(key) for key in AUDIO_KEYS if metadata.get(key)}
    if not given:
        return
    if len(given) > 1:
        raise RefusedRequest(f"metadata may name audio once, not by {' and '.join(given)}")
    (key, value), *_ = given.items()
    blocks = [{"type": "audio_url", "audio_url": {"url": uri}} for uri in _data_uris(key, value, root)]
    body["messages"] = _with_blocks(body.get("messages") or [], blocks)
    if metadata:
        body["metadata"] = metadata
    else:
        body.pop("metadata", None)


def _data_uris(key: str, value: Any, root: Path | None) -> list[str]:
    if key == "audio_data":
        if not isinstance(value, str) or not value.startswith("data:"):
            raise RefusedRequest("metadata.audio_data must be a data: URI")
        return [value]
    return [_read(path, root) for path in _paths(key, value)]


def _paths(key: str, value: Any) -> list[str]:
    if key == "audio_path":
        return [str(value)]
    try:
        paths = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        paths = None
    if not isinstance(paths, list) or not paths or not all(isinstance(path, str) for path in paths):
        raise RefusedRequest("metadata.audio_paths must be a list of paths")
    return paths


def _read(name: str, root: Path | None) -> str:
    path = Path(name)
    media_type = _MEDIA_TYPES.get(path.suffix.lower())
    if media_type is None:
        raise RefusedRequest(f"audio {name!r}: only {', '.join(sorted(_MEDIA_TYPES))} files can be sent")
    if root is not None:
        path = (root / path).resolve()
        if not path.is_relative_to(root.resolve()):
            raise RefusedRequest(f"audio {name!r} lies outside of audio_root")
    elif not path.is_absolute():
        raise RefusedRequest(f"audio {name!r} is relative: set audio_root in the model server's config")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RefusedRequest(f"audio {name!r} can't be read: {error.strerror}") from error
    return f"data:{media_type};base64,{base64.b64encode(content).decode('ascii')}"


def _with_blocks(messages: list[dict[str, Any]], blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    at = next((i for i in range(len(messages) - 1, -1, -1) if messages[i].get("role") == "user"), None)
    if at is None:
        return [*messages, {"role": "user", "content": blocks}]
    content = messages[at].get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
    return [*messages[:at], {**messages[at], "content": [*blocks, *parts]}, *messages[at + 1 :]]
