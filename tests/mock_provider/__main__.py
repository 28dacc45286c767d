"""`python -m tests.mock_provider --port 0 --script FILE.json`: prints the port on a line of its own, then serves."""

from __future__ import annotations

import argparse
import asyncio
import gc
import signal
import sys
from pathlib import Path

from tests.mock_provider.script import Script, ScriptError, ScriptState, load_script
from tests.mock_provider.server import Provider, listen, port_of


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mock_provider", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 chooses a free one")
    parser.add_argument("--script", type=Path, help="JSON file; see README.md. Without one, every answer is the same")
    parser.add_argument("--record", type=int, default=0, help="requests to keep for GET /_mock/requests")
    arguments = parser.parse_args()
    try:
        script = load_script(arguments.script) if arguments.script else Script()
    except ScriptError as error:
        print(error, file=sys.stderr)
        return 2
    asyncio.run(_serve(Provider(ScriptState(script), record=arguments.record), arguments.host, arguments.port))
    return 0


async def _serve(provider: Provider, host: str, port: int) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    server = await listen(provider, host, port)
    gc.freeze()
    print(port_of(server), flush=True)
    await stop.wait()
    server.close()


def _use_uvloop() -> None:
    try:
        import uvloop
    except ImportError:
        return
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())


if __name__ == "__main__":
    _use_uvloop()
    sys.exit(main())
