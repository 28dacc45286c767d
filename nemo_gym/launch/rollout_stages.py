"""Where each rollout in flight is, put together from what servers and collectors say of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nemo_gym.config.keys import RESOURCES_SERVERS, RESPONSES_API_MODELS
from nemo_gym.launch.view import RolloutView, Stage

Row = Mapping[str, Any]
"""A request as a table tells it, or a rollout as a collector does."""

_RESOURCES_STAGES: dict[str, Stage] = {
    "/seed_session": "seed",
    "/reset": "seed",
    "/verify": "verify",
    "/close_session": "close",
    "/close": "close",
}
_KEY = re.compile(r"(?P<task>\d+)-(?P<repeat>\d+)(?:\.r\d+)?(?:-a(?P<attempt>\d+))?")
_STATE_STAGES: dict[str, Stage] = {"queued": "queued", "running": "running", "waiting_to_retry": "retry"}


def key_of_entry(entry: Row) -> str:
    """The id that requests carry for a collector's rollout."""
    base = entry.get("rollout_id") or f"{entry.get('task')}-{entry.get('repeat')}"
    return f"{base}-a{entry['attempt']}" if entry.get("attempt") else str(base)


def shown_key(key: str) -> str:
    """`17-2` for the third repeat of task 17, with the attempt where it isn't the first; other ids as they are."""
    found = _KEY.fullmatch(key)
    if found is None:
        return key
    attempt = f" (attempt {found['attempt']})" if found["attempt"] else ""
    return f"{found['task']}-{found['repeat']}{attempt}"


def stage_of(server_type: str, path: str) -> tuple[Stage, str]:
    """The stage of a rollout for which a server of that type answers a path, and what else there is to say."""
    if server_type == RESPONSES_API_MODELS:
        return "model", path
    if server_type == RESOURCES_SERVERS:
        stage = _RESOURCES_STAGES.get(path)
        return (stage, "") if stage is not None else ("tool", path.strip("/"))
    return "agent", "" if path == "/run" else path


@dataclass
class Rollouts:
    """`types` are those of the servers by name. Requests without a rollout are left out."""

    types: Mapping[str, str]
    _requests: dict[str, list[Row]] = field(default_factory=dict)
    _entries: dict[str, Row] = field(default_factory=dict)

    def add_requests(self, requests: Iterable[Row]) -> None:
        for request in requests:
            if request.get("rollout"):
                self._requests.setdefault(str(request["rollout"]), []).append(request)

    def add_entries(self, entries: Iterable[Row]) -> None:
        self._entries |= {key_of_entry(entry): entry for entry in entries}

    def without_requests(self) -> Rollouts:
        """The same, with only what the collectors told."""
        return Rollouts(self.types, {}, dict(self._entries))

    def keys(self) -> list[str]:
        return list(self._entries | self._requests)

    def longest(self, most: int) -> list[str]:
        """The keys of about `most`: those that have been in a stage for longest, and those under way for longest."""
        ages = {key: self._leaf(requests) for key, requests in self._requests.items()}
        by_stage = sorted(ages, key=lambda key: float((ages[key] or {}).get("age_s", 0.0)), reverse=True)
        under_way = [key for key, entry in self._entries.items() if entry.get("state") != "queued"]
        return list(dict.fromkeys([*by_stage[: most // 2], *under_way[: most // 2]]))

    def views(self) -> list[RolloutView]:
        """Those that are under way, the longest in their stages first; what only waits for its turn is left out."""
        found = (self._view(key) for key in self.keys())
        under_way = [view for view in found if view is not None and view.stage != "queued"]
        return sorted(under_way, key=lambda view: view.stage_s, reverse=True)

    def _view(self, key: str) -> RolloutView | None:
        entry, requests = self._entries.get(key), self._requests.get(key, [])
        told: float = entry["seconds"] if entry is not None else 0.0
        age = max([told, *(request["age_s"] for request in requests)])
        leaf = self._leaf(requests)
        state: Stage = "agent" if entry is None else _STATE_STAGES.get(str(entry.get("state")), "running")
        retries = 0 if entry is None else int(entry.get("retries") or 0)
        if leaf is None or state == "retry":
            server = str(entry["server"]) if entry is not None else ""
            return RolloutView(shown_key(key), state, server, told, age, retries=retries)
        server, path = str(leaf["server"]), str(leaf["path"])
        stage, detail = stage_of(self.types.get(server, ""), path)
        return RolloutView(shown_key(key), stage, server, leaf["age_s"], age, detail, retries)

    def _leaf(self, requests: list[Row]) -> Row | None:
        """What a rollout has waited for longest: a request whose server waits for nobody, or a call nobody took up."""
        at = {request["server"] for request in requests}
        leaves = [request for request in requests if not request.get("calls")]
        leaves += [call for request in requests for call in request.get("calls", ()) if call["server"] not in at]
        if not leaves:
            return min(requests, key=lambda request: float(request["age_s"]), default=None)
        return max(leaves, key=lambda leaf: float(leaf["age_s"]))
