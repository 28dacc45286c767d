"""An environment's servers in this process, and what a request costs them."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, chdir, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from omegaconf import OmegaConf

from nemo_gym import global_config
from nemo_gym.audit import Audit
from nemo_gym.audit.models import FairJudge
from nemo_gym.audit.running import Run, composed
from nemo_gym.audit.subject import Subject, subjects
from nemo_gym.config.entries import implementation_blocks, reference_name
from nemo_gym.config.instances import BaseServerConfig
from nemo_gym.config.roots import PARENT_DIR, also_searched
from nemo_gym.serve.garbage import THRESHOLDS
from nemo_gym.server_utils import ServerClient
from nemo_gym.testing.replies import Script
from nemo_gym.testing.responses import Item, message, response
from tests.security.hostile_outputs import Output

PATIENCE = 60.0
"""Seconds for a request, however busy the machine is."""

MOST_HELD = 0.75
"""Seconds of this process's CPU time that may pass without the event loop getting its turn: hundreds of times what a
linear look at the output takes. CPU time, so that others on the machine don't count."""

MOST_MEGABYTES = 120
"""Of memory that a request may need."""

_OWN_ROUTES = {"/seed_session", "/verify", "/close_session", "/aggregate_metrics", "/mcp", "/reset", "/step", "/close"}


def served_subjects() -> list[tuple[str, Subject]]:
    """Every flavour of every resources server here that serves something."""
    folders = sorted((PARENT_DIR / "resources_servers").iterdir())
    served = [each for each in folders if (each / "configs").is_dir() and "run_webserver()" in _source(each)]
    return [(folder.name, subject) for folder in served for subject in subjects(folder.name)]


def _source(folder: Path) -> str:
    path = folder / "app.py"
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def missing_packages(folder: Path) -> list[str]:
    """Packages of the requirements that are not installed here."""
    lines = (folder / "requirements.txt").read_text(encoding="utf-8").splitlines()
    names = [found[0] for line in lines if (found := re.match(r"[A-Za-z0-9][\w.-]*", line.strip()))]
    return [name for name in names if not _is_installed(name)]


def _is_installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


@dataclass
class Answer:
    """What came of a request, and `held`, the longest time in which nobody else was answered."""

    status: int
    text: str
    cookie: str = ""
    held: float = 0.0
    megabytes: int = 0

    def mishap(self) -> str | None:
        """What no request may do."""
        if self.status >= 500 or (self.status >= 400 and "Traceback" in self.text):
            return f"{self.status}: {self.text[:300]}"
        if self.held > MOST_HELD:
            return f"the event loop had no turn for {self.held:.2f} s of CPU"
        if self.megabytes > MOST_MEGABYTES:
            return f"{self.megabytes} MB of memory"
        return None


@dataclass
class Opened:
    """An environment whose servers answer. `paths` are those one can post to, `tool_routes` those of them that its
    model's calls may reach."""

    run: Run
    client: ServerClient
    server: str
    paths: list[str] = field(default_factory=list)

    @property
    def is_stepped(self) -> bool:
        """Whether it has no verifier, and rewards each step instead."""
        return "/step" in self.paths and "/verify" not in self.paths

    @property
    def tool_routes(self) -> list[str]:
        return [path for path in self.paths if path not in _OWN_ROUTES]

    async def post(self, path: str, body: Any, cookie: str = "") -> Answer:
        """The answer to a body, as it is if it is bytes."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"content-type": "application/json", **({"cookie": cookie} if cookie else {})}
        with _peak() as peak:
            async with _heartbeat() as beats:
                try:
                    async with asyncio.timeout(PATIENCE):
                        reply = await self.client.post(
                            server_name=self.server, url_path=path, data=data, headers=headers
                        )
                        text = await reply.text()
                except TimeoutError:
                    return Answer(504, f"no answer within {PATIENCE:g} s")
        given = reply.headers.get("set-cookie", "").split(";")[0]
        return Answer(reply.status, text, given or cookie, max(beats), max(peak))

    async def begun(self, row: dict[str, Any]) -> str:
        """The cookie of a new session for this row."""
        answer = await self.post("/reset" if self.is_stepped else "/seed_session", row)
        assert answer.status == 200, answer.text
        return answer.cookie

    async def judged(self, row: dict[str, Any], output: Output) -> Answer:
        """What the verifier, or the next step, makes of an output that no judge finds right."""
        self.run.judge = FairJudge(lambda prompt: self.run.verdict(prompt, is_right=False, row=row))
        body = {**row, "response": response(*output.items)}
        return await self.post("/step" if self.is_stepped else "/verify", body, await self.begun(row))

    def right_items(self, row: dict[str, Any]) -> list[Item]:
        """What a perfect model says, all its turns as one."""
        script = Script(self.run.audit.reference(row) if self.run.audit.reference else "x", after=())
        turns = iter(lambda: script.next("It is cold."), [])
        return [item for turn in islice(turns, 5) for item in turn] or [message("x")]


@asynccontextmanager
async def opened(name: str, subject: Subject, overrides: tuple[str, ...] = ()) -> AsyncIterator[Opened]:
    """The environment with its agent, and scripted models in place of real ones.

    Raises GymError where that can't be made.
    """
    statement = subject.statement() or Audit(no_reference="it says nothing of itself")
    config = composed(subject, (*statement.overrides, *overrides))
    with _as_global(config), also_searched(last=[Path.cwd()]), chdir(subject.folder), _old_things_kept():
        run = Run(name, subject, statement, config)
        async with run.stage.open():
            head = BaseServerConfig(host="127.0.0.1", port=1)
            client = ServerClient(head_server_config=head, global_config_dict=config)
            blocks = {key: block for key, _, block in implementation_blocks(OmegaConf.to_container(config))}  # type: ignore[arg-type]
            server = reference_name(blocks[run.agent], "resources_server")
            assert server is not None
            yield Opened(run, client, server, _posted_paths(run.stage.apps[server]))


def _posted_paths(app: FastAPI) -> list[str]:
    return [route.path for route in app.routes if isinstance(route, APIRoute) and "POST" in (route.methods or ())]


@contextmanager
def _as_global(config: Any) -> Iterator[None]:
    before, global_config._GLOBAL_CONFIG_DICT = global_config._GLOBAL_CONFIG_DICT, config
    try:
        yield
    finally:
        global_config._GLOBAL_CONFIG_DICT = before


@contextmanager
def _old_things_kept() -> Iterator[None]:
    """Have the garbage collector, which holds up the loop too, collect as seldom as in a server, and nothing of what
    earlier tests have left."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@asynccontextmanager
async def _heartbeat() -> AsyncIterator[list[float]]:
    """The CPU time between beats of a task that does nothing else; a thread that keeps the interpreter holds it up as
    well as a coroutine does."""
    gaps, last = [0.0], time.process_time()

    def beaten() -> None:
        nonlocal last
        now = time.process_time()
        gaps[0], last = max(gaps[0], now - last), now

    async def beat() -> None:
        while True:
            await asyncio.sleep(0.002)
            beaten()

    beating = asyncio.create_task(beat())
    try:
        yield gaps
    finally:
        beaten()
        beating.cancel()
        with suppress(asyncio.CancelledError):
            await beating


@contextmanager
def _peak() -> Iterator[list[int]]:
    """The memory in MB by which this process grew meanwhile at its peak; 0 where the kernel doesn't tell."""
    grown = [0]
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak is what there is now
    before = _high_water()
    yield grown
    grown[0] = _high_water() - before


def _high_water() -> int:
    with suppress(OSError):
        found = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text(encoding="ascii"))
        return int(found[1]) // 1024 if found else 0
    return 0
