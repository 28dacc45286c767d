"""Prompts with a picture, for preparing benchmarks."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nemo_gym.prompt import PromptConfig


def build_image_input(prompt_config: "PromptConfig", question: str, image: str) -> list[dict[str, Any]]:
    """The prompt's messages with `{question}` filled in.

    With a non-empty `image` (a data URI, or raw base64 of a PNG) the first user message becomes text and image parts.
    """
    from nemo_gym.prompt import fill_prompt

    messages: list[dict[str, Any]] = [dict(message) for message in fill_prompt(prompt_config, {"question": question})]
    if not image:
        return messages
    url = image if image.startswith("data:") else f"data:image/png;base64,{image}"
    first = next(message for message in messages if message["role"] == "user")
    first["content"] = [
        {"type": "input_text", "text": first["content"]},
        {"type": "input_image", "image_url": url, "detail": "high"},
    ]
    return messages
