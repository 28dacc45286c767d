"""A model deployed on Azure OpenAI, asked for chat completions through the official client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlsplit

from aiohttp import ClientResponseError
from multidict import CIMultiDict
from pydantic import Field, PrivateAttr, field_validator

from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig
from nemo_gym.serve.replies import RequestSummary
from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint
from responses_api_models.inference_provider.chat_backed import ChatBackedModel

if TYPE_CHECKING:
    from openai import APIStatusError, AsyncAzureOpenAI


class AzureOpenAIModelServerConfig(BaseResponsesAPIModelConfig):
    """`openai_base_url` is the resource's endpoint, `openai_model` the deployment; `default_query` has api-version."""

    openai_base_url: str
    openai_api_key: str
    openai_model: str
    default_query: dict[str, str]
    num_concurrent_requests: int = Field(default=8, ge=1)
    extra_body: dict[str, Any] = Field(default_factory=dict)

    @field_validator("default_query")
    @classmethod
    def _check_version(cls, value: dict[str, str]) -> dict[str, str]:
        if not value.get("api-version"):
            raise ValueError("default_query needs api-version, for example 2024-10-21")
        return value


class AzureOpenAIModelServer(ChatBackedModel):
    config: AzureOpenAIModelServerConfig

    _client: AsyncAzureOpenAI = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        config = self.config
        self._client = _client_of(config)
        self._use(model=config.openai_model, concurrency=config.num_concurrent_requests, extra_body=config.extra_body)
        super().model_post_init(context)

    async def _complete(self, body: dict[str, Any]) -> dict[str, Any]:
        from openai import APIStatusError

        try:
            completion = await self._client.chat.completions.create(**body)
        except APIStatusError as error:
            _raise_as_response_error(error)
        answer: dict[str, Any] = completion.model_dump(mode="json", exclude_unset=True)
        return answer


def _client_of(config: AzureOpenAIModelServerConfig) -> AsyncAzureOpenAI:
    from openai import AsyncAzureOpenAI

    query: dict[str, Any] = dict(config.default_query)
    version = query["api-version"]
    if "/openai" in urlsplit(config.openai_base_url).path:
        return AsyncAzureOpenAI(
            base_url=config.openai_base_url, api_key=config.openai_api_key, api_version=version, default_query=query
        )
    return AsyncAzureOpenAI(
        azure_endpoint=config.openai_base_url, api_key=config.openai_api_key, api_version=version, default_query=query
    )


def _raise_as_response_error(error: APIStatusError) -> NoReturn:
    """The client's error as the one that every Gym server reports with the backend's own words."""
    request = error.request
    url = str(request.url)
    summary: Any = RequestSummary(url, request.method, CIMultiDict(), url)
    found = ClientResponseError(
        summary, (), status=error.status_code, message=error.message, headers=CIMultiDict(error.response.headers)
    )
    found.response_content = error.response.content  # type: ignore[attr-defined]
    raise found from None


if __name__ == "__main__":
    AzureOpenAIModelServer.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = AzureOpenAIModelServer.run_webserver()
