"""Which sessions are open and which were closed: what every server that keeps state per session should hold to."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from nemo_gym.base_resources_server import SessionStore
from nemo_gym.episode_types import EpisodeId, TaskId

REMEMBERED = 100_000


@dataclass
class _Session:
    episode: EpisodeId
    task: TaskId | None


class Sessions:
    """Opening twice and closing twice are fine; an id belongs to one episode and task, and stays closed.

    Open sessions expire as in every `SessionStore`; the longest closed ones are forgotten past `REMEMBERED`.
    """

    def __init__(self) -> None:
        self._open: SessionStore[_Session] = SessionStore()
        self._closed: OrderedDict[str, _Session] = OrderedDict()

    def open(self, session_id: str, episode: EpisodeId, task: TaskId) -> None:
        """ValueError when the session was closed, or is of another episode or task."""
        if session_id in self._closed:
            raise ValueError(f"session {session_id!r} is closed; seed a new one")
        session = self._open.setdefault(session_id, _Session(episode, task))
        if (session.episode, session.task) != (episode, task):
            raise ValueError(f"session {session_id!r} belongs to another episode or task")

    def close(self, session_id: str, episode: EpisodeId) -> None:
        """Also an unknown session is closed, so that a late seed is refused. ValueError for another episode's."""
        session = self._open.find(session_id) or self._closed.get(session_id) or _Session(episode, None)
        if session.episode != episode:
            raise ValueError(f"session {session_id!r} belongs to another episode")
        self._open.close(session_id)
        self._closed[session_id] = session
        if len(self._closed) > REMEMBERED:
            self._closed.popitem(last=False)
