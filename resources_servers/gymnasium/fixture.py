"""The `VERIFIER_FIXTURE` of environments that are reset and stepped: each case is an episode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel

from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.verifier_fixture import VerifierFixture, server_fixture
from resources_servers.gymnasium.server import GymnasiumServer


class PlayedEpisode(BaseModel):
    """The fields of a row, and the responses of the model."""

    row: dict[str, Any]
    responses: list[NeMoGymResponse]


async def play(server: GymnasiumServer, episode: PlayedEpisode) -> float:
    """The sum of the rewards. What `reset` and `step` raise comes through."""
    session, total = "case", 0.0
    await server.reset(episode.row, session)
    for response in episode.responses:
        _, reward, terminated, truncated, _ = await server.step(response, episode.row, session)
        total += reward
        if terminated or truncated:
            break
    return round(total, 9)


def episode_fixture(kind: type[GymnasiumServer], cases_path: Path) -> VerifierFixture:
    """Cases of an environment without settings of its own."""
    return server_fixture(kind, PlayedEpisode, cases_path, invoke=play)
