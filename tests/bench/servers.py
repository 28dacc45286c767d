"""`start`, `first-build` and `single`: the three servers, started and used."""

import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.bench.commands import GYM
from tests.bench.machine import quiet_environment
from tests.bench.processes import Usage, cpu_seconds, family, pss_megabytes, run, wait_for_line
from tests.bench.report import Figure, median
from tests.mock_provider import MockProvider
from tests.ports import free_port

READY = "All 3 / 3 servers ready!"


@dataclass(frozen=True)
class Started:
    """A running set: seconds to ready, its launcher and where its head listens."""

    seconds: float
    launcher: int
    head_port: int

    def instances(self) -> list[dict[str, Any]]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.head_port}/server_instances", timeout=5) as reply:
            rows: list[dict[str, Any]] = json.load(reply)
            return rows

    def processes(self) -> dict[str, int]:
        """The server processes by name: those of the instances, or the shards they share."""
        names = {pid: Path(f"/proc/{pid}/comm").read_text().strip() for pid in family(self.launcher)}
        shards = {name: pid for pid, name in names.items() if name.startswith("shard-")}
        return shards or {row["process_name"]: int(row["pid"]) for row in self.instances()}


@contextmanager
def started(
    root: Path,
    scratch: Path,
    provider: str,
    *extra: str,
    environment: str = "mcqa",
    model: str = "openai_model",
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Started]:
    """`gym env start` of an environment, simple_agent and a model server on free ports, stopped after the block.

    `variables` are added to its environment.
    """
    port = free_port()
    log = scratch / f"start-{port}.log"
    argv = [*GYM, "env", "start", "--resources-server", environment, "--model-type", model]
    argv += [
        f"+policy_base_url={provider}",
        "+policy_api_key=k",
        "+policy_model_name=mock",
        f"+head_server.port={port}",
        *extra,
    ]
    begun = time.perf_counter()
    with log.open("wb") as sink:
        environ = {**quiet_environment(), **variables}
        process = subprocess.Popen(argv, cwd=root, env=environ, stdout=sink, stderr=subprocess.STDOUT)
    try:
        wait_for_line(process, log, READY)
        yield Started(time.perf_counter() - begun, process.pid, port)
    finally:
        process.terminate()
        process.wait(timeout=30)


def start(root: Path, *, quick: bool) -> list[Figure]:
    times = 2 if quick else 5
    bare = [run([sys.executable, "-c", "pass"], cwd=root).wall * 3 for _ in range(times)]
    seconds, memory, processes = [], [], []
    with tempfile.TemporaryDirectory() as folder, MockProvider() as mock:
        for _ in range(times + 1):
            with started(root, Path(folder), mock.base_url) as run_of_three:
                pids = family(run_of_three.launcher)
                seconds.append(run_of_three.seconds)
                memory.append(pss_megabytes(pids))
                processes.append(float(len(pids)))
                ray = [pid for pid in pids if b"raylet" in Path(f"/proc/{pid}/cmdline").read_bytes()]
                assert not ray, "a plain start must not bring up Ray"
    return [
        Figure("start", "time to ready, median (first run dropped)", median(seconds[1:]), "s", median(bare), "< 2 s"),
        Figure("start", "memory of the whole set, PSS", median(memory[1:]), "MB", None, "< 300 MB"),
        Figure("start", "processes", median(processes[1:]), ""),
    ]


def first_build(root: Path, *, quick: bool) -> list[Figure]:
    del quick
    with tempfile.TemporaryDirectory() as folder, MockProvider() as mock:
        venvs = Path(folder) / "venvs"
        with started(root, Path(folder), mock.base_url, f"+uv_venv_dir={venvs}") as run_of_three:
            seconds = run_of_three.seconds
        added = sum(
            file.stat().st_blocks * 512 for file in venvs.rglob("*") if file.is_file() and not file.is_symlink()
        )
    return [
        Figure("first-build", "time to ready", seconds, "s", None, "< 5 s"),
        Figure("first-build", "disk added per component", added / 2**20 / 3, "MB", None, "< 20 MB"),
    ]


def write_prompts(path: Path, count: int) -> None:
    """`count` distinct single-turn mcqa rows."""
    with path.open("w") as sink:
        for number in range(count):
            question = f"Question {number}: which letter comes first?\nA: a\nB: b\nAnswer with a boxed letter."
            row = {
                "responses_create_params": {"input": [{"role": "user", "content": question}]},
                "uuid": str(number),
                "options": [{"A": "a"}, {"B": "b"}],
                "expected_answer": "A",
                "agent_ref": {"type": "responses_api_agents", "name": "mcqa_simple_agent"},
            }
            sink.write(json.dumps(row) + "\n")


def single(root: Path, *, quick: bool) -> list[Figure]:
    return _single(root, 200 if quick else 2000, _WIDTHS, "single", "< 4 ms")


def single_shared(root: Path, *, quick: bool) -> list[Figure]:
    return _single(root, 200 if quick else 2000, _WIDTHS, "single-shared", "< 1 ms", "+placement=shared")


def curves(root: Path, *, quick: bool) -> list[Figure]:
    """The two cases at more widths, for the pictures."""
    count, widths = (100, (1, 16)) if quick else (1000, (1, 2, 4, 8, 16, 32, 64, 128, 256, 512))
    figures = _single(root, count, widths, "curve-process", "", "+placement=process")
    return figures + _single(root, count, widths, "curve-shared", "", "+placement=shared")


_WIDTHS = (1, 32, 256)


def _single(root: Path, count: int, widths: Sequence[int], case: str, budget: str, *extra: str) -> list[Figure]:
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder, MockProvider("\\boxed{A}") as mock:
        scratch = Path(folder)
        prompts, one = scratch / "prompts.jsonl", scratch / "one.jsonl"
        write_prompts(prompts, count)
        write_prompts(one, 1)
        with started(root, scratch, mock.base_url, *extra) as servers:
            pids = servers.processes()
            collect(root, one, scratch / "warm.jsonl", servers.head_port, 1)
            for width in widths:
                name = f"{case}/{width}"
                figures += _single_at(
                    root, scratch, prompts, one, servers, pids, count, width, mock.base_url, name, budget
                )
    return figures


def _single_at(
    root: Path,
    scratch: Path,
    prompts: Path,
    one: Path,
    servers: Started,
    pids: dict[str, int],
    count: int,
    width: int,
    provider: str,
    case: str,
    budget: str,
) -> list[Figure]:
    baseline = collect(root, one, scratch / f"one-{width}.jsonl", servers.head_port, width)
    before = {name: cpu_seconds(pid) for name, pid in pids.items()}
    done = collect(root, prompts, scratch / f"many-{width}.jsonl", servers.head_port, width)
    spent = {name: cpu_seconds(pid) - before[name] for name, pid in pids.items()}
    spent["collector"] = done.cpu - baseline.cpu
    rows = (scratch / f"many-{width}.jsonl").read_text().count("\n")
    if rows != count:
        raise RuntimeError(f"{rows} records for {count} rows")
    floor = run([sys.executable, "-m", "tests.bench.floor", str(prompts), provider, str(width)], cwd=root)
    floor_start = run([sys.executable, "-m", "tests.bench.floor", str(one), provider, str(width)], cwd=root)
    floor_cpu = (floor.cpu - floor_start.cpu) / count * 1000
    total = sum(spent.values()) / count * 1000
    wall = done.wall - baseline.wall
    return [
        Figure(case, "CPU per rollout, all of ours", total, "ms", floor_cpu, budget),
        *(Figure(case, f"  {name}", seconds / count * 1000, "ms") for name, seconds in sorted(spent.items())),
        Figure(case, "rollouts per second", count / wall, "/s", count / (floor.wall - floor_start.wall)),
    ]


def collect(
    root: Path, rows: Path, output: Path, head_port: int, width: int, *, agent: str = "mcqa_simple_agent"
) -> Usage:
    argv = [
        *GYM,
        "eval",
        "run",
        "--no-serve",
        "--agent",
        agent,
        "--input",
        str(rows),
        "--output",
        str(output),
    ]
    usage = run([*argv, "--concurrency", str(width), f"+head_server.port={head_port}"], cwd=root)
    if usage.exit_code:
        raise RuntimeError(f"`gym eval run` ended with {usage.exit_code}")
    return usage
