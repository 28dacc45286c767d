"""Put first on PYTHONPATH: each process forked from here counts what part of it is at work, by ticks of its CPU time.

Written now and then to `$GYM_SAMPLES/<pid>.json`, a count by part. A part is the first of `PARTS` that a file of the
stack belongs to, from the innermost frame outwards, so that C code counts for whoever called it.
"""

import json
import os
import signal
from collections import Counter
from pathlib import Path
from types import FrameType

PARTS = {
    "aiohttp, to the provider": ("/aiohttp/", "/yarl/", "/multidict/"),
    "uvicorn": ("/uvicorn/", "/serve/uvicorn_server.py"),
    "asyncio": ("/asyncio/",),
    "pydantic, without what it calls of ours": ("/pydantic/",),
    "validators and tags of the schema": ("/nemo_gym/schema/",),
    "session cookies": ("/serve/sessions.py", "/serve/cookies.py", "/itsdangerous/", "/hmac.py", "/http/cookies.py"),
    "the JSON route": ("/serve/json_route.py", "/serve/json_app.py", "/serve/bodies.py", "/serve/arrived_body.py"),
    "calls inside the process": ("/serve/local", "/serve/asgi_request.py", "/serve/client", "/serve/replies.py"),
    "our middleware": ("/nemo_gym/serve/", "/nemo_gym/capture/", "/nemo_gym/telemetry/"),
    "agent and verifier": ("/responses_api_agents/", "/resources_servers/", "/nemo_gym/verifiers/"),
    "model server": ("/responses_api_models/",),
    "Starlette and FastAPI": ("/starlette/", "/fastapi/"),
}
OTHER = "what else"
EVERY_SECONDS = 0.001
"""The kernel's own tick may be longer."""
WRITTEN_EVERY = 50

counts: Counter[str] = Counter()
_known: dict[str, str] = {}


def part_of(file: str) -> str:
    """The part a source file belongs to; empty for none."""
    if (part := _known.get(file)) is None:
        found = (name for name, places in PARTS.items() if any(place in file for place in places))
        part = _known[file] = next(found, "")
    return part


def note(_: int, frame: FrameType | None) -> None:
    """A moment in which the process computes."""
    while frame is not None and not part_of(frame.f_code.co_filename):
        frame = frame.f_back
    counts[OTHER if frame is None else part_of(frame.f_code.co_filename)] += 1
    if counts.total() % WRITTEN_EVERY == 0:
        Path(os.environ["GYM_SAMPLES"], f"{os.getpid()}.json").write_text(json.dumps(counts))


def begin() -> None:
    """A timer isn't inherited by a fork, so each begins its own."""
    counts.clear()
    signal.signal(signal.SIGPROF, note)
    signal.setitimer(signal.ITIMER_PROF, EVERY_SECONDS, EVERY_SECONDS)


if "GYM_SAMPLES" in os.environ:
    os.register_at_fork(after_in_child=begin)
