"""Which engine answers: one of several addresses, the same for a whole session, or whatever a file says now."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from responses_api_models.vllm_model.errors import StaleEndpoint


def engine_index(session_id: str, engines: int) -> int:
    """The engine of a session: the same in every worker process."""
    digest = hashlib.sha256(session_id.encode()).digest()
    return int.from_bytes(digest[:8], "big") % engines


@dataclass
class EndpointFile:
    """A file whose content is the engine's current address, looked at once per `interval` seconds."""

    path: Path
    interval: float
    grace: float
    url: str | None = None
    checked_at: float | None = None
    modified: int | None = None
    missing_since: float | None = None

    def changed_url(self, now: float) -> str | None:
        """The address, if it is another than at the last look. Raises StaleEndpoint after `grace` without one."""
        if self.checked_at is not None and now - self.checked_at < self.interval:
            self._check_grace(now)
            return None
        self.checked_at = now
        url = self._read()
        if url is None:
            self.modified = None
            self.missing_since = now if self.missing_since is None else self.missing_since
            self._check_grace(now)
            return None
        self.missing_since = None
        if url == self.url:
            return None
        self.url = url
        return url

    def _read(self) -> str | None:
        try:
            modified = self.path.stat().st_mtime_ns
            if modified == self.modified and self.missing_since is None:
                return self.url
            text = self.path.read_text().strip()
        except FileNotFoundError:
            return None
        except OSError:
            return self.url
        self.modified = modified
        return text or None

    def _check_grace(self, now: float) -> None:
        if self.missing_since is not None and now - self.missing_since > self.grace:
            raise StaleEndpoint(
                f"{self.path} has held no address for {now - self.missing_since:.0f} s: is the engine still running?"
            )
