"""`flight`: very many rollouts in the air at once, against a provider that takes its time."""

import json
import os
import statistics
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.bench.processes import cpu_seconds, family
from tests.bench.report import Figure
from tests.bench.servers import collect, started, write_prompts
from tests.mock_provider import MockProvider, Reply

_SHARDS = ("+placement=shared", "+placement_shards=2")
_UNBOUND = ("+observability_enabled=false", "+global_aiohttp_connector_limit_per_host=0")
"""Servers that run for anybody bound their connections to a host (1,024); here the collector is the only bound."""


def flight(root: Path, *, quick: bool) -> list[Figure]:
    seconds = 5.0 if quick else 60.0
    figures = _in_the_air(root, "flight/shared", 512 if quick else 16_384, seconds, *_SHARDS)
    return figures + _in_the_air(root, "flight/process", 256 if quick else 4_096, seconds, "+placement=process")


def latency(root: Path, *, quick: bool) -> list[Figure]:
    """What we add to a provider that takes a second, with more and more in the air, for the pictures."""
    widths = (16, 64) if quick else (16, 64, 256, 1_024, 4_096)
    figures: list[Figure] = []
    for width in widths:
        figures += _in_the_air(root, f"air-process/{width}", width, 1.0, "+placement=process")
        figures += _in_the_air(root, f"air-shared/{width}", width, 1.0, *_SHARDS)
    return figures


def _in_the_air(root: Path, case: str, count: int, seconds: float, *extra: str) -> list[Figure]:
    reply = Reply(text="\\boxed{A}", latency=seconds)
    with tempfile.TemporaryDirectory() as folder, MockProvider(reply) as mock:
        scratch = Path(folder)
        rows, output = scratch / "rows.jsonl", scratch / "out.jsonl"
        write_prompts(rows, count)
        with started(root, scratch, mock.base_url, *_UNBOUND, *extra) as servers, _watched(servers.launcher) as seen:
            usage = collect(root, rows, output, servers.head_port, count)
        cpu = usage.cpu + seen.cpu
        measured = output.read_text().count("\n")
        added = sorted(latency - seconds for latency in _latencies(Path(f"{output}.journal")))
    floor = seconds + cpu / (os.cpu_count() or 1)
    return [
        Figure(case, f"wall, {count} at once", usage.wall, "s", floor, "< 1.3 x floor"),
        Figure(case, "rollouts that failed", count - measured, "", None, "0"),
        Figure(case, "added latency, p50", statistics.median(added), "s"),
        Figure(case, "added latency, p99", added[int(0.99 * (len(added) - 1))], "s"),
        Figure(case, "CPU per rollout, all of ours", cpu / count * 1000, "ms"),
        Figure(case, "most requests at the provider", mock.max_in_flight, ""),
        Figure(case, "most open files of a server", seen.open_files, "", None, "< 20000"),
    ]


def _latencies(journal: Path) -> Iterator[float]:
    with journal.open() as lines:
        for line in lines:
            entry = json.loads(line)
            if entry.get("kind") == "done" and entry.get("seconds") is not None:
                yield entry["seconds"]


@dataclass
class _Seen:
    """The most open files that any process had, and the CPU seconds all of them used."""

    open_files: int = 0
    cpu: float = 0.0

    def look(self, pids: list[int]) -> None:
        for pid in pids:
            with suppress(OSError):
                self.open_files = max(self.open_files, sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()))


@contextmanager
def _watched(launcher: int) -> Iterator[_Seen]:
    """Look at the launcher's processes until the block ends."""
    seen, over = _Seen(), threading.Event()
    pids = family(launcher)
    before = sum(map(cpu_seconds, pids))

    def watch() -> None:
        while not over.wait(1.0):
            seen.look(pids)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()
        seen.cpu = sum(map(cpu_seconds, pids)) - before
