"""The contract of a resources server's sessions, checked against a live app."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from nemo_gym.schema.episodes import EpisodeId

if TYPE_CHECKING:
    from fastapi import FastAPI
    from fastapi.testclient import TestClient


class SeedRequest(Protocol):
    """A `ResourcesSeedSessionRequest`."""

    resources_session_id: str
    episode_id: EpisodeId

    def model_dump(self, *, mode: str = "python") -> dict[str, Any]:
        """The request as data."""


def check_resources_session_contract(app: FastAPI, seed: SeedRequest, *, keeps_state: bool) -> None:
    """Seeding and closing can be repeated, and what was never open can be closed.

    A server that `keeps_state` must also refuse to seed what was closed. Raises AssertionError for the first breach.
    """
    from fastapi.testclient import TestClient

    known = seed.resources_session_id
    unknown = f"{known}-never-seeded"
    with TestClient(app, raise_server_exceptions=False) as client:
        for again in ("", " again"):
            _require_success(f"seeding{again}", _seed(client, seed, known), known)
        for again in ("", " again"):
            _require_success(f"closing{again}", _close(client, seed, known), known)
        _require_success("closing what was never seeded", _close(client, seed, unknown), unknown)
        if keeps_state:
            _require_refusal("seeding what was closed", _seed(client, seed, known))
            _require_refusal("seeding what was closed before it was seeded", _seed(client, seed, unknown))


def _seed(client: TestClient, seed: SeedRequest, session_id: str) -> Any:
    return client.post("/seed_session", json={**seed.model_dump(mode="json"), "resources_session_id": session_id})


def _close(client: TestClient, seed: SeedRequest, session_id: str) -> Any:
    episode_id = seed.episode_id.model_dump(mode="json")
    return client.post("/close_session", json={"resources_session_id": session_id, "episode_id": episode_id})


def _require_success(what: str, answer: Any, session_id: str) -> None:
    if answer.status_code != 200:
        raise AssertionError(f"{what} must succeed, not answer {answer.status_code}: {answer.text}")
    answered = answer.json()
    if not isinstance(answered, dict) or answered.get("resources_session_id") != session_id:
        raise AssertionError(f"{what} must answer with resources_session_id {session_id!r}, not {answered!r}")


def _require_refusal(what: str, answer: Any) -> None:
    if answer.status_code < 400:
        raise AssertionError(f"{what} must be refused, not answered {answer.status_code}: {answer.text}")
