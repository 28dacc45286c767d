"""What an agent owes its environment's server: to notice that the session is gone, and to give it back."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from nemo_gym.config_types import AggregateMetrics, AggregateMetricsRequest
from nemo_gym.failure_kinds import SESSION_EXPIRED, SESSION_LOST
from nemo_gym.serve.failures import Cause
from nemo_gym.server_utils import ServerClient, get_response_json, raise_for_status

_GONE = 410
_RELEASE_SECONDS = 30.0

LOG = logging.getLogger(__name__)
_releasing: set[asyncio.Task[None]] = set()


async def raise_for_lost_session(answer: Any) -> None:
    """Raise ClientResponseError where a tool's server says that it no longer has the session.

    That is no result for a model to read: whatever it did next would be done to an environment begun anew.
    """
    if answer.status != _GONE:
        return
    cause = Cause.of_headers(answer.headers)
    if cause is not None and cause.kind in (SESSION_EXPIRED, SESSION_LOST):
        await raise_for_status(answer)


async def metrics_at(client: ServerClient, server_name: str, body: AggregateMetricsRequest) -> AggregateMetrics:
    """The metrics of a run by the resources server, which knows what its rewards mean."""
    answer = await client.post(server_name=server_name, url_path="/aggregate_metrics", json=body)
    await raise_for_status(answer)
    return AggregateMetrics.model_validate(await get_response_json(answer))


def release_in_background(client: ServerClient, server_name: str, cookies: dict[str, str]) -> None:
    """Have a resources server drop the session of a rollout that came to nothing; nobody waits for it."""
    task = asyncio.get_running_loop().create_task(_release(client, server_name, cookies))
    _releasing.add(task)
    task.add_done_callback(_releasing.discard)


async def _release(client: ServerClient, server_name: str, cookies: dict[str, str]) -> None:
    body = {"resources_session_id": "", "episode_id": {"rollout_id": "abandoned"}}
    try:
        await client.post(
            server_name=server_name, url_path="/close_session", json=body, cookies=cookies, timeout=_RELEASE_SECONDS
        )
    except Exception as error:
        LOG.info("The session at %s could not be closed: %r", server_name, error)
