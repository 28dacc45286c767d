from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI, HTTPException

from nemo_gym.base_resources_server import (
    ResourcesCloseSessionRequest,
    ResourcesSeedSessionRequest,
    ResourcesSeedSessionResponse,
)
from nemo_gym.episode_types import EpisodeId, TaskId
from nemo_gym.testing.session_conformance import check_resources_session_contract
from tests.unit.serve.toys import toy_resources

SEED = ResourcesSeedSessionRequest(
    resources_session_id="s",
    episode_id=EpisodeId(rollout_id="r"),
    task_id=TaskId(taskset="t", task_id="1"),
    task_data={"x": 1},
)


def server(**breaks: Any) -> FastAPI:
    """Keeps to the contract, except where told not to."""
    app, opened, closed = FastAPI(), set[str](), set[str]()

    @app.post("/seed_session")
    async def seed(body: ResourcesSeedSessionRequest) -> ResourcesSeedSessionResponse:
        name = body.resources_session_id
        if name in closed and not breaks.get("reopens") and not (breaks.get("forgets") and name not in opened):
            raise ValueError("closed")
        if name in opened and breaks.get("seeds_once"):
            raise HTTPException(409)
        opened.add(name)
        return ResourcesSeedSessionResponse(resources_session_id=breaks.get("other_id", name))

    @app.post("/close_session")
    async def close(body: ResourcesCloseSessionRequest) -> ResourcesSeedSessionResponse:
        name = body.resources_session_id
        if (name in closed and breaks.get("closes_once")) or (name not in opened and breaks.get("knows_only_seeded")):
            raise HTTPException(404)
        closed.add(name)
        return ResourcesSeedSessionResponse(resources_session_id=name)

    return app


def test_a_server_that_keeps_to_it_passes() -> None:
    check_resources_session_contract(server(), SEED, keeps_state=True)
    check_resources_session_contract(toy_resources().setup_webserver(), SEED, keeps_state=False)


BREACHES = [
    ("reopens", "seeding what was closed must"),
    ("forgets", "seeding what was closed before it was seeded"),
    ("seeds_once", "seeding again"),
    ("closes_once", "closing again"),
    ("knows_only_seeded", "closing what was never seeded"),
    ("other_id", "resources_session_id 's'"),
]


@pytest.mark.parametrize(("breach", "told"), BREACHES)
def test_each_breach_is_told(breach: str, told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        check_resources_session_contract(server(**{breach: "x"}), SEED, keeps_state=True)


def test_a_server_without_state_may_seed_again() -> None:
    check_resources_session_contract(server(reopens=True), SEED, keeps_state=False)
    with pytest.raises(AssertionError):
        check_resources_session_contract(toy_resources().setup_webserver(), SEED, keeps_state=True)
