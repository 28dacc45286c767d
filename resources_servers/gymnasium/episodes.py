"""Where the episodes under way are kept."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from nemo_gym.base_resources_server import SessionExpiredError, SessionStore

StateT = TypeVar("StateT")
_MISSING = object()


class EpisodeStore(SessionStore[StateT]):
    """A dict by session id, bounded in number and idle time.

    An episode that was closed is unknown again. Touching one that was dropped, because it was idle for too long or one
    of too many, raises SessionExpiredError, so that nobody goes on in an episode begun anew.
    """

    def __contains__(self, session_id: object) -> bool:
        return self.find(cast(str, session_id)) is not None

    def close(self, session_id: str) -> bool:
        was_open = super().close(session_id)
        if was_open:
            self._ends.pop(session_id, None)
        return was_open

    def pop(self, session_id: str, default: Any = _MISSING) -> Any:
        """The state, which is closed; `default` for one that isn't there, for whatever reason."""
        try:
            return super().pop(session_id) if default is _MISSING else super().pop(session_id, default)
        except SessionExpiredError:
            if default is _MISSING:
                raise
            return default
