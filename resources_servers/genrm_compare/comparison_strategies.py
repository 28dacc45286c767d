"""For trainers: how the responses to a prompt that were generated together get their rewards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from nemo_gym.server_utils import ServerClient, get_response_json, raise_for_status
from resources_servers.genrm_compare.conversations import extract_from_response_obj


class ComparisonStrategy(Protocol):
    """`agent_names`: rows of these agents are scored by it, `num_generations_per_prompt` of a prompt together."""

    agent_names: list[str]
    num_generations_per_prompt: int

    async def compare(
        self,
        conversation_history: list[dict[str, Any]],
        response_objs: list[dict[str, Any]],
        principle: str | None = None,
    ) -> tuple[list[float], dict[str, Any]]:
        """The rewards of the responses, in order, and metrics."""


@dataclass(frozen=True)
class GenRMStrategyConfig:
    agent_names: Sequence[str] = ("genrm_simple_agent", "genrm_simple_agent_reasoning_off")
    num_generations_per_prompt: int = 16
    genrm_compare_server_name: str = "genrm_compare"
    policy_model_server_name: str = "policy_model"


@dataclass
class GenRMStrategy:
    """Has a `genrm_compare` server compare them."""

    config: GenRMStrategyConfig
    server_client: ServerClient
    agent_names: list[str] = field(init=False)
    num_generations_per_prompt: int = field(init=False)

    def __post_init__(self) -> None:
        self.agent_names = list(self.config.agent_names)
        self.num_generations_per_prompt = self.config.num_generations_per_prompt

    async def compare(
        self,
        conversation_history: list[dict[str, Any]],
        response_objs: list[dict[str, Any]],
        principle: str | None = None,
    ) -> tuple[list[float], dict[str, Any]]:
        """Raises aiohttp's ClientResponseError where the server can't compare them."""
        body: dict[str, Any] = {"conversation_history": conversation_history, "response_objs": response_objs}
        if principle is not None:
            body["principle"] = principle
        answer = await self.server_client.post(
            server_name=self.config.genrm_compare_server_name, url_path="/compare", json=body
        )
        await raise_for_status(answer)
        compared = await get_response_json(answer)
        return compared["rewards"], compared["metrics"]


async def generate_response(
    responses_create_params: dict[str, Any], server_client: ServerClient, server_name: str = "policy_model"
) -> dict[str, Any]:
    """The response of a model server, as JSON. Raises aiohttp's ClientResponseError."""
    answer = await server_client.post(server_name=server_name, url_path="/v1/responses", json=responses_create_params)
    await raise_for_status(answer)
    response: dict[str, Any] = await get_response_json(answer)
    return response


def extract_generated_text(response_obj: dict[str, Any]) -> str:
    """What was answered in a response; empty for nothing."""
    return extract_from_response_obj(response_obj)[1]
