"""Where servers are that may move: with `placement: ray` one whose node was lost is started anew on another."""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
import urllib.request
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from aiohttp import ClientSession

from nemo_gym.config.handover import ADDRESSES_FILE_NAME, run_directory
from nemo_gym.config.instances import BaseServerConfig, server_instances
from nemo_gym.config.placement import servers_move
from nemo_gym.serve.connections import break_off

LOOK_EVERY_SECONDS = 0.5
MOVING_SECONDS = 180.0
"""So long a call waits for a server that is gone to be somewhere else: its node has to be given up, and the server to
start anew."""
PAUSE_SECONDS = 0.5
_HEAD_SECONDS = 5.0
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))

Addresses = Mapping[str, str]
"""`http://host:port` by instance name."""


class Whereabouts:
    """Keeps the addresses of a run's servers as `source` tells them, looked at now and then in a thread of its own.

    When a server has moved, connections to where it was are broken off: whoever waits on one would do so until the
    kernel gives up a node that no longer answers. `names` has the other names of servers. The thread ends with this
    object.
    """

    def __init__(
        self,
        source: Callable[[], Addresses | None],
        names: Mapping[str, str] | None = None,
        *,
        every: float = LOOK_EVERY_SECONDS,
    ) -> None:
        self._source = source
        self._names = names or {}
        self._known: dict[str, str] = {}
        self._sessions: WeakKeyDictionary[asyncio.AbstractEventLoop, ClientSession] = WeakKeyDictionary()
        looking = threading.Thread(target=_keep_looking, args=(weakref.ref(self), every), daemon=True)
        looking.name = "gym-whereabouts"
        looking.start()

    @classmethod
    def of_run(cls, config: Mapping[Any, Any], head: BaseServerConfig) -> Whereabouts | None:
        """Of the run with this config: None where servers stay where they are.

        The run's folder tells, where there is one here, else its head server.
        """
        if not servers_move(config):
            return None
        file = run_directory(head.port) / ADDRESSES_FILE_NAME
        names = {each.name: each.alias_of or each.name for each in server_instances(config)}
        if file.exists():
            found = cls(lambda: read_addresses(file), names)
            found.look()
            return found
        url = f"http://{f'[{head.host}]' if ':' in head.host else head.host}:{head.port}/server_instances"
        return cls(lambda: _told_by_head(url), names)

    def base_url(self, name: str, default: str) -> str:
        """Where a server is now, as far as known; `default` where nothing else was ever known."""
        return self._known.setdefault(self._names.get(name, name), default)

    def note(self, session: ClientSession) -> None:
        """A session of the running loop is about to be used."""
        self._sessions.setdefault(asyncio.get_running_loop(), session)

    def look(self) -> None:
        """Ask the source once."""
        told = self._source() or {}
        left = {before for name, url in told.items() if (before := self._known.get(name)) not in (None, url)}
        self._known.update(told)
        for url in left:
            self._break_off(str(url))

    def _break_off(self, url: str) -> None:
        for loop, session in list(self._sessions.items()):
            if not loop.is_closed():
                loop.call_soon_threadsafe(break_off, session, url)


def read_addresses(file: Path) -> Addresses | None:
    """What a run's file says; None when there is none."""
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
    return {str(name): str(url) for name, url in content.items()} if isinstance(content, dict) else None


def _told_by_head(url: str) -> Addresses | None:
    try:
        with _direct.open(url, timeout=_HEAD_SECONDS) as answer:
            return {record["process_name"]: record["url"] for record in json.loads(answer.read())}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _keep_looking(reference: weakref.ref[Whereabouts], every: float) -> None:
    pause = threading.Event()
    while (whereabouts := reference()) is not None:
        whereabouts.look()
        del whereabouts
        pause.wait(every)


@dataclass
class Followed:
    """A call to a server that may move; `since` is when it was first found to be gone."""

    whereabouts: Whereabouts
    name: str
    base_url: str
    since: float = math.inf

    def moved_url(self, url: str) -> str | None:
        """The same URL at the server's new address; None while it has none."""
        current = self.whereabouts.base_url(self.name, self.base_url)
        if current == self.base_url or not url.startswith(self.base_url):
            return None
        moved, self.base_url = current + url.removeprefix(self.base_url), current
        self.since = math.inf
        return moved

    def pause(self) -> float | None:
        """Seconds until it is worth another look; None when the server has been gone for too long."""
        now = time.monotonic()
        self.since = min(self.since, now)
        return PAUSE_SECONDS if now - self.since < MOVING_SECONDS else None


followed: ContextVar[Followed | None] = ContextVar("nemo_gym_followed_server", default=None)
"""The server that the next request asks, where servers move."""


@contextmanager
def following(whereabouts: Whereabouts | None, name: str, base_url: str) -> Iterator[None]:
    """Requests inside go to a server wherever it is."""
    token = followed.set(None if whereabouts is None else Followed(whereabouts, name, base_url))
    try:
        yield
    finally:
        followed.reset(token)
