"""A generative reward model: a local vLLM engine whose chat template compares two answers."""

from __future__ import annotations

from typing import Any, ClassVar

from fastapi import Request

from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint
from responses_api_models.local_vllm_model.app import LocalVLLMModel, LocalVLLMModelConfig
from responses_api_models.vllm_model.errors import RefusedRequest

_RESPONSE_ROLES = ("response_1", "response_2")
_PRINCIPLE_ROLE = "principle"


class GenRMModelConfig(LocalVLLMModelConfig):
    """The keys of `local_vllm_model`. `supports_principle_role`: the chat template knows the role `principle`."""

    supports_principle_role: bool = True


class GenRMModel(LocalVLLMModel):
    config: GenRMModelConfig

    ray_enabled: ClassVar[bool | None] = True

    def _preprocess_chat_completion_create_params(self, request: Request, body_dict: dict[str, Any]) -> dict[str, Any]:
        """The engine's body: what is to be compared comes in the metadata and goes on as messages of special roles."""
        metadata = body_dict.get("metadata") or {}
        rest = {key: value for key, value in body_dict.items() if key != "metadata"}
        body = super()._preprocess_chat_completion_create_params(request, rest)
        body["messages"] = [*body["messages"], *self._comparison(metadata)]
        return body

    def _comparison(self, metadata: dict[str, Any]) -> list[dict[str, Any]]:
        roles = list(_RESPONSE_ROLES)
        if metadata.get(_PRINCIPLE_ROLE):
            if not self.config.supports_principle_role:
                raise RefusedRequest(
                    "metadata.principle can't be sent: supports_principle_role is false. Leave it out of the request."
                )
            roles.insert(0, _PRINCIPLE_ROLE)
        return [{"role": role, "content": metadata[role]} for role in roles if role in metadata]


if __name__ == "__main__":
    GenRMModel.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = GenRMModel.run_webserver()
