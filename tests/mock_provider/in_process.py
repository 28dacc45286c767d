"""The mock provider inside a test's own process, on a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Any

from tests.mock_provider.script import Reply, Script, ScriptState
from tests.mock_provider.server import Provider, RecordedRequest, listen, port_of


class MockProvider:
    """`with MockProvider(Reply(text="B")) as mock:` serves at `mock.base_url` (ends in /v1) until the block ends.

    Takes a Script, or replies: the default's turns. Works in sync and async tests, since it has its own loop.
    """

    def __init__(self, script: Script | Reply | str = Script.of(), *more: Reply) -> None:
        self._provider = Provider(ScriptState(_script(script, *more)))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="mock-provider", daemon=True)
        self._ready = threading.Event()
        self._port = 0

    def __enter__(self) -> MockProvider:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    @property
    def pages(self) -> dict[str, Any]:
        """Other paths that answer 200, with what JSON."""
        return self._provider.pages

    @property
    def port(self) -> int:
        return self._port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    @property
    def requests(self) -> list[RecordedRequest]:
        """What was asked of the provider, oldest first."""
        return list(self._provider.recorded)

    @property
    def last_body(self) -> dict[str, Any]:
        return self._provider.recorded[-1].body

    @property
    def count(self) -> int:
        return sum(self._provider.counts.values())

    @property
    def max_in_flight(self) -> int:
        return self._provider.max_in_flight

    @property
    def in_flight(self) -> int:
        return self._provider.in_flight

    def bodies(self, path: str) -> list[dict[str, Any]]:
        """Bodies sent to one route, such as /v1/chat/completions."""
        return [request.body for request in self._provider.recorded if request.path == path]

    def play(self, script: Script | Reply | str, *more: Reply) -> None:
        """Starts another script and forgets what was counted."""
        self._provider.reset(_script(script, *more))

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(listen(self._provider, "127.0.0.1", 0))
        self._port = port_of(server)
        self._ready.set()
        self._loop.run_forever()
        server.close()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


def _script(script: Script | Reply | str, *more: Reply) -> Script:
    if isinstance(script, Script):
        return script
    return Script.of(Reply(text=script) if isinstance(script, str) else script, *more)
