"""A LiteLLM proxy: the pass-through of `openai_model`, with a look at the proxy first and repairs of its answers."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import ClientResponseError
from fastapi import FastAPI
from multidict import CIMultiDict

from nemo_gym.config.secrets import looks_like_secret_key
from nemo_gym.openai_utils import NeMoGymChatCompletion, NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.responses_converter import ResponsesConverter
from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint
from responses_api_models.litellm_model.readiness import check_proxy
from responses_api_models.litellm_model.repairs import is_chat_completion, repaired
from responses_api_models.openai_model.app import SimpleModelServer, SimpleModelServerConfig

_MASK = b"****"
# A header's name and its value, in HTTP's form or in JSON, which may be quoted inside a JSON string.
_SECRET_FIELD = re.compile(
    rb"""(?ix) ( (?:proxy-)?authorization | x-api-key | api[-_]key | (?:set-)?cookie ) ( \\*["']? \s* [:=] \s* )
    (?: (\\*["']) .*? \3 | [^\\"'\r\n,}]+ )"""
)


class LiteLLMModelServerConfig(SimpleModelServerConfig):
    """The keys of `openai_model`; `openai_base_url` is the proxy's."""


class LiteLLMModelServer(SimpleModelServer):
    config: LiteLLMModelServerConfig

    def setup_webserver(self) -> FastAPI:
        """The app; raises ConfigError when the proxy isn't ready or its release can't be used."""
        version = check_proxy(self.config.openai_base_url, self.config.openai_api_key)
        print(f"LiteLLM {version} at {self.config.openai_base_url}", flush=True)
        return super().setup_webserver()

    def _response_of(self, body: NeMoGymResponseCreateParamsNonStreaming, answer: dict[str, Any]) -> NeMoGymResponse:
        if is_chat_completion(answer):
            converter = ResponsesConverter(return_token_id_information=False)
            return converter.chat_completion_to_response(body, NeMoGymChatCompletion.model_validate(answer))
        return super()._response_of(body, repaired(answer))

    async def _ask(self, create: Callable[..., Awaitable[dict[str, Any]]], request: dict[str, Any]) -> dict[str, Any]:
        try:
            return await super()._ask(create, request)
        except ClientResponseError as error:
            without_secrets(error, self.config.openai_api_key)
            raise


def without_secrets(error: ClientResponseError, api_key: str) -> None:
    """Masks keys and cookies in an error that will be logged: the proxy repeats headers in its error bodies."""
    content: bytes = getattr(error, "response_content", b"")
    content = content.replace(api_key.encode(), _MASK) if api_key else content
    error.response_content = _SECRET_FIELD.sub(rb"\1\2\3****\3", content)  # type: ignore[attr-defined]
    error.headers = _masked(error.headers)
    info: Any = error.request_info
    if hasattr(info, "_replace"):
        error.request_info = info._replace(headers=_masked(info.headers))
        error.args = (error.request_info, ())


def _masked(headers: Any) -> CIMultiDict[str]:
    pairs = (headers or {}).items()
    return CIMultiDict((name, "****" if looks_like_secret_key(name) else value) for name, value in pairs)


if __name__ == "__main__":
    LiteLLMModelServer.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = LiteLLMModelServer.run_webserver()
