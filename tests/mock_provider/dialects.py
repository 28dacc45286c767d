"""Renders a Reply as the body of each provider route, and reads from a request what choosing a reply needs."""

from __future__ import annotations

import re
from itertools import count
from typing import Any

from tests.mock_provider import tokens
from tests.mock_provider.script import Reply, Script

_CREATED = 1_700_000_000
_serial = count(1)
_AZURE = re.compile(r"^/openai/deployments/[^/]+/")


def chat(request: dict[str, Any], reply: Reply, script: Script) -> dict[str, Any]:
    prompt = tokens.tokenize(tokens.prompt_text(request.get("messages", [])))
    bundle = _token_bundle(reply, prompt)
    message: dict[str, Any] = {"role": "assistant", "content": _content(reply)}
    if reply.refusal is not None:
        message["refusal"] = reply.refusal
    if reply.tool_calls:
        message["tool_calls"] = _chat_tool_calls(reply)
    if reply.reasoning is not None and reply.reasoning_field != "think_tags":
        names = ("reasoning_content", "reasoning") if reply.reasoning_field == "both" else (reply.reasoning_field,)
        message.update(dict.fromkeys(names, reply.reasoning))
    choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": _finish(reply), "logprobs": None}
    body = {
        "id": f"chatcmpl-mock{next(_serial)}",
        "object": "chat.completion",
        "created": _CREATED,
        "model": request.get("model") or script.model,
        "choices": [choice],
    }
    if reply.message_tokens:
        ids = {"prompt_token_ids": bundle.prompt, "generation_token_ids": bundle.generation}
        message.update(ids, generation_log_probs=bundle.logprobs)
    if request.get("logprobs"):
        choice["logprobs"] = {"content": _logprob_content(request, bundle)}
    if request.get("return_token_ids"):
        body["prompt_token_ids"], choice["token_ids"] = bundle.prompt, bundle.generation
    return _with_usage(body, reply, bundle, "prompt_tokens", "completion_tokens")


def completion(request: dict[str, Any], reply: Reply, script: Script) -> dict[str, Any]:
    bundle = _token_bundle(reply, tokens.tokenize(_prompt(request)))
    choice: dict[str, Any] = {
        "index": 0,
        "text": _content(reply) or "",
        "finish_reason": _finish(reply),
        "logprobs": None,
    }
    body = {
        "id": f"cmpl-mock{next(_serial)}",
        "object": "text_completion",
        "created": _CREATED,
        "model": request.get("model") or script.model,
        "choices": [choice],
    }
    if request.get("logprobs") is not None:
        names = [entry["token"] for entry in _logprob_content(request, bundle)]
        choice["logprobs"] = {
            "tokens": names,
            "token_logprobs": bundle.logprobs,
            "top_logprobs": None,
            "text_offset": [],
        }
    if request.get("return_token_ids"):
        choice["prompt_token_ids"], choice["token_ids"] = bundle.prompt, bundle.generation
    return _with_usage(body, reply, bundle, "prompt_tokens", "completion_tokens")


def responses(request: dict[str, Any], reply: Reply, script: Script) -> dict[str, Any]:
    bundle = _token_bundle(reply, tokens.tokenize(last_user_message("/v1/responses", request)[0]))
    serial = next(_serial)
    output: list[dict[str, Any]] = []
    if reply.reasoning is not None:
        summary = [{"type": "summary_text", "text": reply.reasoning}]
        output.append({"id": f"rs_mock{serial}", "type": "reasoning", "summary": summary})
    parts: list[dict[str, Any]] = []
    if reply.text:
        parts.append({"type": "output_text", "text": reply.text, "annotations": []})
    if reply.refusal is not None:
        parts.append({"type": "refusal", "refusal": reply.refusal})
    if parts:
        message = {
            "id": f"msg_mock{serial}",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": parts,
        }
        output.append(message)
    for index, call in enumerate(reply.tool_calls):
        item = {"id": f"fc_mock{serial}_{index}", "type": "function_call", "call_id": _call_id(reply, index)}
        output.append(item | {"name": call.name, "arguments": call.arguments_json, "status": "completed"})
    if reply.message_tokens and output:
        ids = {"prompt_token_ids": bundle.prompt, "generation_token_ids": bundle.generation}
        output[-1] |= ids | {"generation_log_probs": bundle.logprobs}
    incomplete = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(_finish(reply))
    body = {
        "id": f"resp_mock{serial}",
        "object": "response",
        "created_at": _CREATED,
        "model": request.get("model") or script.model,
        "output": output,
        "status": "incomplete" if incomplete else "completed",
        "incomplete_details": {"reason": incomplete} if incomplete else None,
        "parallel_tool_calls": request.get("parallel_tool_calls", True),
        "tool_choice": request.get("tool_choice", "auto"),
        "tools": request.get("tools", []),
    }
    body = _with_usage(body, reply, bundle, "input_tokens", "output_tokens")
    if reply.usage is True:
        body["usage"] |= {
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        }
    return body


def messages(request: dict[str, Any], reply: Reply, script: Script) -> dict[str, Any]:
    bundle = _token_bundle(reply, tokens.tokenize(tokens.prompt_text(request.get("messages", []))))
    serial = next(_serial)
    content: list[dict[str, Any]] = []
    if reply.reasoning is not None:
        content.append({"type": "thinking", "thinking": reply.reasoning, "signature": "mock"})
    if reply.text or reply.refusal:
        content.append({"type": "text", "text": reply.text or reply.refusal})
    for index, call in enumerate(reply.tool_calls):
        arguments = call.arguments if isinstance(call.arguments, dict) else {}
        content.append({"type": "tool_use", "id": _call_id(reply, index), "name": call.name, "input": arguments})
    stops = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}
    usage = {"input_tokens": len(bundle.prompt), "output_tokens": len(bundle.generation)}
    return {
        "id": f"msg_mock{serial}",
        "type": "message",
        "role": "assistant",
        "model": request.get("model") or script.model,
        "content": content,
        "stop_reason": stops.get(_finish(reply), "end_turn"),
        "stop_sequence": None,
        "usage": reply.usage if isinstance(reply.usage, dict) else usage,
    }


def models(script: Script) -> dict[str, Any]:
    entry = {
        "id": script.model,
        "object": "model",
        "created": _CREATED,
        "owned_by": "mock",
        "max_model_len": script.max_model_len,
    }
    return {"object": "list", "data": [entry]}


def tokenize(request: dict[str, Any], script: Script) -> dict[str, Any]:
    text = request["prompt"] if "prompt" in request else tokens.prompt_text(request.get("messages", []))
    ids = tokens.tokenize(text)
    return {"count": len(ids), "max_model_len": script.max_model_len, "tokens": ids, "token_strs": None}


RENDERERS = {
    "/v1/chat/completions": chat,
    "/v1/completions": completion,
    "/v1/responses": responses,
    "/v1/messages": messages,
}


def plain_path(path: str) -> str:
    """The route without the deployment that Azure puts before it."""
    return _AZURE.sub("/v1/", path)


def last_user_message(path: str, request: dict[str, Any]) -> tuple[str, int]:
    """The text of the last user message, and the number of assistant turns made since it."""
    if path == "/v1/completions":
        return _prompt(request), 0
    items = request.get("input" if path == "/v1/responses" else "messages", [])
    if isinstance(items, str):
        return items, 0
    turns, in_turn = 0, False
    for item in reversed(items):
        if item.get("role") == "user" and not _is_tool_result(item):
            return tokens.text_of(item.get("content")), turns
        model_made = item.get("role") == "assistant" or item.get("type") in ("function_call", "reasoning")
        turns += model_made and not in_turn
        in_turn = model_made
    return "", turns


def context_error(script: Script) -> dict[str, Any]:
    message = (
        f"This model's maximum context length is {script.max_model_len} tokens. However, your request has more input "
        "tokens. Please reduce the length of the input messages."
    )
    return {"error": {"message": message, "type": "BadRequestError", "param": "input_tokens", "code": 400}}


class _Bundle:
    __slots__ = ("generation", "logprobs", "prompt", "words")

    def __init__(self, prompt: list[int], generation: list[int], logprobs: list[float], words: list[str]) -> None:
        self.prompt, self.generation, self.logprobs, self.words = prompt, generation, logprobs, words


def _token_bundle(reply: Reply, prompt: list[int]) -> _Bundle:
    words = tokens.words(" ".join(filter(None, (reply.reasoning, reply.text or reply.refusal))))
    words += [f"{call.name}{call.arguments_json}" for call in reply.tool_calls]
    if reply.token_ids is not None:
        generation = list(reply.token_ids)
    elif reply.token_count is not None:
        generation = [index % tokens.VOCABULARY for index in range(reply.token_count)]
    else:
        generation = [tokens.token_id(word) for word in words]
    logprobs = [tokens.logprob(token) for token in generation] if reply.logprobs is None else list(reply.logprobs)
    ids = prompt if reply.prompt_token_ids is None else list(reply.prompt_token_ids)
    return _Bundle(ids, generation, logprobs, words + [""] * (len(generation) - len(words)))


def _logprob_content(request: dict[str, Any], bundle: _Bundle) -> list[dict[str, Any]]:
    as_ids = request.get("return_tokens_as_token_ids")
    names = [f"token_id:{token}" for token in bundle.generation] if as_ids else bundle.words
    return [
        {"token": name, "logprob": value, "bytes": None, "top_logprobs": []}
        for name, value in zip(names, bundle.logprobs, strict=False)
    ]


def _content(reply: Reply) -> str | None:
    if reply.reasoning is not None and reply.reasoning_field == "think_tags":
        return f"<think>{reply.reasoning}</think>{reply.text or ''}"
    return None if reply.tool_calls and not reply.text else reply.text


def _chat_tool_calls(reply: Reply) -> list[dict[str, Any]]:
    return [
        {
            "id": _call_id(reply, index),
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments_json},
        }
        for index, call in enumerate(reply.tool_calls)
    ]


def _call_id(reply: Reply, index: int) -> str:
    return reply.tool_calls[index].id or f"call_mock{next(_serial)}"


def _finish(reply: Reply) -> str:
    return reply.finish_reason or ("tool_calls" if reply.tool_calls else "stop")


def _with_usage(body: dict[str, Any], reply: Reply, bundle: _Bundle, sent: str, made: str) -> dict[str, Any]:
    if isinstance(reply.usage, dict):
        body["usage"] = reply.usage
    elif reply.usage:
        prompt, generation = len(bundle.prompt), len(bundle.generation)
        body["usage"] = {sent: prompt, made: generation, "total_tokens": prompt + generation}
    return body


def _is_tool_result(item: dict[str, Any]) -> bool:
    content = item.get("content")
    return isinstance(content, list) and bool(content) and all(part.get("type") == "tool_result" for part in content)


def _prompt(request: dict[str, Any]) -> str:
    prompt = request.get("prompt", "")
    return prompt if isinstance(prompt, str) else ""
