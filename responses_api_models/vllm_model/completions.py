"""Chat requests for an engine that only completes text."""

from __future__ import annotations

from typing import Any

from nemo_gym.config.errors import ConfigError
from responses_api_models.vllm_model.errors import RefusedRequest

Body = dict[str, Any]

_SAME_IN_BOTH = (
    "model",
    "temperature",
    "top_p",
    "n",
    "seed",
    "stop",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "response_format",
    "user",
)


class PromptRenderer:
    """One prompt of chat messages: their plain text, or what a tokenizer's chat template makes of them."""

    def __init__(self, tokenizer: Any = None) -> None:
        self._tokenizer = tokenizer

    @classmethod
    def with_template_of(cls, name: str, *, trust_remote_code: bool) -> PromptRenderer:
        """Loads a Hugging Face tokenizer. Raises ConfigError when there is none, or none with a chat template."""
        try:
            from transformers import AutoTokenizer
        except ImportError as error:
            raise ConfigError(
                "render_chat_template needs the package transformers: add it to the requirements of vllm_model."
            ) from error
        try:
            tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=trust_remote_code)
        except (OSError, ValueError) as error:
            raise ConfigError(f"The tokenizer {name!r} can't be loaded: {error}. Set `tokenizer`.") from error
        if not getattr(tokenizer, "chat_template", None):
            raise ConfigError(f"The tokenizer {name!r} has no chat template: set render_chat_template to false.")
        return cls(tokenizer)

    @property
    def is_slow(self) -> bool:
        """Whether rendering is worth a thread of its own."""
        return self._tokenizer is not None

    def render(self, body: Body) -> str:
        """The prompt of a chat request. Raises RefusedRequest for what has no place in it."""
        if self._tokenizer is None:
            return _plain_prompt(body)
        options: dict[str, Any] = {"add_generation_prompt": body.get("add_generation_prompt", True)}
        if body.get("continue_final_message"):
            options |= {"continue_final_message": True, "add_generation_prompt": False}
        prompt: str = self._tokenizer.apply_chat_template(
            body["messages"],
            tools=body.get("tools"),
            tokenize=False,
            **options,
            **(body.get("chat_template_kwargs") or {}),
        )
        return prompt


def _plain_prompt(body: Body) -> str:
    messages = body["messages"]
    roles = [message.get("role") for message in messages]
    if body.get("tools") or roles not in (["user"], ["system", "user"]):
        raise RefusedRequest(
            "use_completions_api without render_chat_template takes one user message, or a system and a user message, "
            f"and no tools; this request has {roles}"
        )
    return "\n\n".join(_text(message.get("content")) for message in messages)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content or []
    if not all(isinstance(part, dict) and part.get("type") == "text" for part in parts):
        raise RefusedRequest("use_completions_api takes text only; this request has other content parts")
    return "".join(part["text"] for part in parts)


def completion_body(body: Body, prompt: str, extra: Body) -> Body:
    """The body for /completions; `extra` is the caller's and the config's extra fields, passed as they are."""
    request = {**extra, **{key: body[key] for key in _SAME_IN_BOTH if body.get(key) is not None}, "prompt": prompt}
    limit = body.get("max_tokens") or body.get("max_completion_tokens")
    if limit is not None:
        request["max_tokens"] = limit
    if body.get("top_logprobs") is not None:
        request["logprobs"] = body["top_logprobs"]
    elif body.get("logprobs"):
        request["logprobs"] = 0
    for key in ("return_tokens_as_token_ids", "return_token_ids"):
        if key in body:
            request[key] = body[key]
    return request


def as_chat_completion(completion: Body) -> Body:
    """A text completion as a chat completion: the text is the content, tool calls aren't looked for."""
    chat = {key: value for key, value in completion.items() if key != "choices"}
    choices = [
        {
            "index": choice.get("index", 0),
            "finish_reason": choice.get("finish_reason"),
            "message": {"role": "assistant", "content": choice.get("text")},
        }
        for choice in completion.get("choices") or []
    ]
    return {**chat, "object": "chat.completion", "choices": choices}
