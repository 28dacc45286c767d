"""Parts of message content, Responses ⇄ Chat Completions."""

from collections.abc import Mapping
from typing import Any

from nemo_gym.schema.content import video_address
from nemo_gym.schema.errors import InvalidContent, UnsupportedInDialect


def _image_to_chat(part: Mapping[str, Any]) -> dict[str, Any]:
    source = part.get("image_url")
    url = source.get("url") if isinstance(source, Mapping) else source
    if not url:
        if part.get("file_id"):
            raise UnsupportedInDialect("input_image by file_id has no form in Chat Completions; give image_url")
        raise InvalidContent("input_image needs an image_url that is not empty")
    detail = part.get("detail") or "auto"
    if detail == "original":
        raise UnsupportedInDialect("input_image with detail 'original' has no form in Chat Completions; use 'high'")
    return {"type": "image_url", "image_url": {"url": url, "detail": detail}}


def part_to_chat(part: Mapping[str, Any]) -> dict[str, Any]:
    """One input part as a chat part. Raises UnsupportedInDialect, or InvalidContent for an empty source."""
    match part.get("type"):
        case "input_text":
            return {"type": "text", "text": part["text"]}
        case "input_image":
            return _image_to_chat(part)
        case "input_video":
            return {"type": "video_url", "video_url": {"url": video_address(part)}}
        case "input_audio":
            return {"type": "input_audio", "input_audio": part["input_audio"]}
        case kind:
            raise UnsupportedInDialect(f"content of type {kind!r} has no form in Chat Completions")


def content_to_chat(content: Any) -> Any:
    """String content as it is, part lists part by part."""
    return content if isinstance(content, str) else [part_to_chat(part) for part in content]


def tool_output_to_chat(output: Any) -> Any:
    """A tool's answer as the content of a tool message: a string, or text parts."""
    if isinstance(output, str):
        return output
    for part in output:
        if part.get("type") != "input_text":
            raise UnsupportedInDialect(f"tool output of type {part.get('type')!r} has no form in Chat Completions")
    return [{"type": "text", "text": part["text"]} for part in output]


def refuse_phase(phase: str | None) -> None:
    """Raises UnsupportedInDialect for a message that has a phase."""
    if phase is not None:
        raise UnsupportedInDialect("a message's phase has no form in Chat Completions")


def refuse_namespace(namespace: str | None) -> None:
    """Raises UnsupportedInDialect for a function call that has a namespace."""
    if namespace is not None:
        raise UnsupportedInDialect("a function call's namespace has no form in Chat Completions")


def _part_to_responses(part: Mapping[str, Any]) -> dict[str, Any]:
    match part.get("type"):
        case "text":
            return {"type": "input_text", "text": part["text"]}
        case "image_url":
            image = part["image_url"]
            source: Mapping[str, Any] = image if isinstance(image, Mapping) else {"url": image}
            return {"type": "input_image", "image_url": source["url"], "detail": source.get("detail") or "auto"}
        case "video_url":
            return {"type": "input_video", "video_url": part["video_url"]}
        case "file":
            return {"type": "input_file", **part["file"]}
        case "input_text" | "input_image" | "input_video" | "input_audio" | "input_file":
            return dict(part)
        case kind:
            raise UnsupportedInDialect(f"chat content of type {kind!r} has no form in the Responses API")


def content_to_responses(content: Any) -> Any:
    """Content of a chat message to the model; null becomes the empty string."""
    if isinstance(content, list):
        return [_part_to_responses(part) for part in content]
    return content or ""


def assistant_texts(content: Any) -> tuple[str, str]:
    """Text and refusal of a model's message in either dialect, each concatenated."""
    if isinstance(content, str):
        return content, ""
    text = refusal = ""
    for part in content or ():
        if part.get("type") != "refusal":
            text += part.get("text") or ""
        refusal += part.get("refusal") or ""
    return text, refusal
