"""Sessions whose process died, and the servers that cannot go on without them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi import Request
from fastapi.testclient import TestClient

from nemo_gym.config.handover import GENERATION_ENV
from nemo_gym.serve.json_app import json_app
from nemo_gym.serve.lost_sessions import LostSessionMiddleware, own_generation
from nemo_gym.serve.sessions import SESSION_ID_KEY, SessionMiddleware


def client_of(generation: int) -> TestClient:
    app = json_app()

    @app.post("/seed_session")
    @app.post("/tool")
    async def tell(request: Request) -> dict[str, Any]:
        return {"id": request.session[SESSION_ID_KEY]}

    if generation:
        app.add_middleware(LostSessionMiddleware, session_cookie="toy", generation=generation)
    app.add_middleware(SessionMiddleware, secret_key="k" * 32, session_cookie="toy")
    return TestClient(app)


def seeded(generation: int) -> str:
    """The cookie of a session opened at that process of the server."""
    cookie = client_of(generation).post("/seed_session").cookies["toy"]
    assert isinstance(cookie, str)
    return cookie


def asked(cookie: str, generation: int, path: str = "/tool") -> Any:
    return client_of(generation).post(path, headers={"Cookie": f"toy={cookie}"})


@pytest.mark.parametrize(("opened", "now"), [(0, 1), (1, 2)])
def test_a_session_of_an_earlier_process_is_lost_and_says_so(opened: int, now: int) -> None:
    """B26: what was in memory is gone; the rollout fails with a kind that is tried again, not with a wrong result."""
    answer = asked(seeded(opened), now)
    assert answer.status_code == 410
    assert json.loads(answer.headers["X-NeMo-Gym-Cause"])["kind"] == "session_lost"
    assert answer.json()["detail"].startswith("session_lost: ")


@pytest.mark.parametrize("generation", [0, 1, 2])
def test_a_session_of_this_process_goes_on(generation: int) -> None:
    assert asked(seeded(generation), generation).status_code == 200


def test_who_brings_no_session_gets_one() -> None:
    assert client_of(1).post("/tool").status_code == 200


def test_a_session_can_be_opened_whatever_the_caller_held() -> None:
    answer = asked(seeded(0), 1, "/seed_session")
    assert answer.status_code == 200
    assert asked(answer.cookies["toy"], 1).json() == answer.json()


@pytest.mark.parametrize(("text", "generation"), [("", 0), ("2", 2), ("x", 0)])
def test_a_process_knows_which_of_its_servers_it_is(
    monkeypatch: pytest.MonkeyPatch, text: str, generation: int
) -> None:
    monkeypatch.setenv(GENERATION_ENV, text)
    assert own_generation() == generation
