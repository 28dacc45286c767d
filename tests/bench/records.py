"""`collector`, `aggregate` and `resume`: many rows, with memory that must not follow.

`NEMO_GYM_BENCH_ROWS` sets the larger number of rows (default 200,000; the budgets speak of a million).
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from tests.bench.machine import quiet_environment
from tests.bench.report import Figure, median

ROWS_ENV = "NEMO_GYM_BENCH_ROWS"
REPEATS = 100
_TEXT = "Because it is so, and not otherwise. " * 48

AGGREGATE = """
import json, sys, time, pathlib
from nemo_gym.results.aggregate import BaseMetrics
from nemo_gym.results.jsonl import JsonLines
begun = time.process_time()
base = BaseMetrics()
for line in JsonLines(pathlib.Path(sys.argv[1]), "--rollouts"):
    base.add(line.record)
metrics, groups = base.agent_metrics(), sum(1 for _ in base.groups())
repeats = base.repeats()
status = pathlib.Path("/proc/self/status").read_text().splitlines()
peak = next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM:"))
print(json.dumps({"cpu": time.process_time() - begun, "peak": peak, "groups": groups}))
"""
PROFILE = """
import json, sys, time, pathlib
from nemo_gym.results.profile import profile
begun = time.process_time()
profile(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[1]))
status = pathlib.Path("/proc/self/status").read_text().splitlines()
peak = next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM:"))
print(json.dumps({"cpu": time.process_time() - begun, "peak": peak}))
"""
PASS = """
import json, sys, time, orjson
begun, wall = time.process_time(), time.perf_counter()
keys = 0
with open(sys.argv[1], "rb") as lines:
    for line in lines:
        record = orjson.loads(line)
        keys += record["_ng_task_index"] >= 0 and record["_ng_rollout_index"] >= 0
print(json.dumps({"cpu": time.process_time() - begun, "wall": time.perf_counter() - wall, "keys": keys}))
"""


def collector(root: Path, *, quick: bool) -> list[Figure]:
    """Rows through the collector with servers that answer at once in its process."""
    small, large = (2_000, 10_000) if quick else (20_000, _rows())
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder:
        peaks = []
        for count in (small, large):
            rows = Path(folder) / f"rows-{count}.jsonl"
            _write_rows(rows, count)
            done = _stub(root, Path(folder) / f"out-{count}.jsonl", "--input", str(rows))
            if done["asked"] != count:
                raise RuntimeError(f"{done['asked']} rollouts for {count} rows")
            peaks.append(done["peak"])
            name = f"{count:,} rows"
            figures += [
                Figure("collector", f"{name}, peak resident memory", done["peak"], "MB", None, "< 300 MB"),
                Figure("collector", f"{name}, slope per 100,000 rows", _slope(done["memory"]), "MB", None, "~ 0"),
                Figure("collector", f"{name}, rows per second", count / done["seconds"], "/s"),
                Figure("collector", f"{name}, CPU per row", done["cpu"] / count * 1000, "ms"),
            ]
    growth = (peaks[1] - peaks[0]) / (large - small) * 100_000
    return [*figures, Figure("collector", "growth of the peak per 100,000 rows", growth, "MB", None, "~ 0")]


def aggregate(root: Path, *, quick: bool) -> list[Figure]:
    """Base metrics and the profile over records of two kilobytes, a hundred repeats of each task."""
    count = 10_000 if quick else _rows()
    with tempfile.TemporaryDirectory() as folder:
        records, plan = Path(folder) / "out.jsonl", Path(folder) / "plan.jsonl"
        _write_lines(records, (_record(number) for number in range(count)))
        _write_lines(plan, (_planned(number) for number in range(count)))
        size = records.stat().st_size / 2**20
        floor = median([_python(root, PASS, records)["cpu"] for _ in range(1 if quick else 3)])
        base = _python(root, AGGREGATE, records)
        profiled = _python(root, PROFILE, records, plan)
    return [
        Figure("aggregate", f"base metrics, {count:,} records, {size:.0f} MB, CPU", base["cpu"], "s", floor, "< 3 x"),
        Figure("aggregate", "base metrics, peak resident memory", base["peak"], "MB", None, "< 500 MB"),
        Figure("aggregate", "profile, CPU", profiled["cpu"], "s", floor, "< 3 x"),
        Figure("aggregate", "profile, peak resident memory", profiled["peak"], "MB", None, "< 500 MB"),
    ]


def resume(root: Path, *, quick: bool) -> list[Figure]:
    """A run that was stopped at 99 %: time until the first row is sent again."""
    count = 10_000 if quick else _rows()
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "out.jsonl"
        _write_stopped_run(output, count)
        floors = [_python(root, PASS, output)["wall"] for _ in range(1 if quick else 3)]
        done = _stub(root, output, "--resume", "--stop-at-first")
    if not done["asked"]:
        raise RuntimeError("no rollout was started")
    return [
        Figure("resume", f"{count:,} rows, to first dispatch", done["to_first"], "s", median(floors), "< 2 x"),
        Figure("resume", "peak resident memory", done["peak"], "MB"),
    ]


def _rows() -> int:
    return int(os.environ.get(ROWS_ENV, "200000"))


def _slope(memory: list[float]) -> float:
    """MB per 100,000 rows over the later four fifths of a run, by least squares; 0 for too few samples."""
    from tests.bench.stub import SAMPLE_EVERY

    samples = memory[len(memory) // 5 :]
    if len(samples) < 3:
        return 0.0
    middle, mean = (len(samples) - 1) / 2, sum(samples) / len(samples)
    spread = sum((index - middle) ** 2 for index in range(len(samples)))
    slope = sum((index - middle) * (value - mean) for index, value in enumerate(samples)) / spread
    return slope / SAMPLE_EVERY * 100_000


def _stub(root: Path, output: Path, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.stub", str(output), *arguments],
        cwd=root,
        env=quiet_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-4000:])
    figures: dict[str, Any] = json.loads(done.stderr.strip().splitlines()[-1])
    return figures


def _python(root: Path, code: str, *arguments: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=root,
        env=quiet_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-4000:])
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def _write_lines(path: Path, entries: Iterator[dict[str, Any]]) -> None:
    with path.open("wb") as file:
        for entry in entries:
            file.write(orjson.dumps(entry) + b"\n")


def _write_rows(path: Path, count: int) -> None:
    _write_lines(path, ({"responses_create_params": {"input": f"Question {n}?"}, "uuid": n} for n in range(count)))


def _planned(number: int) -> dict[str, Any]:
    task, repeat = divmod(number, REPEATS)
    return {
        "responses_create_params": {"input": f"Question {task}?"},
        "agent_ref": {"name": "math_agent"},
        "_ng_task_index": task,
        "_ng_rollout_index": repeat,
    }


def _record(number: int) -> dict[str, Any]:
    usage = {"input_tokens": number % 977, "output_tokens": number % 331, "total_tokens": number % 1301}
    output = [{"type": "message", "content": [{"type": "output_text", "text": _TEXT}]}]
    return {
        **_planned(number),
        "response": {"output": output, "usage": usage},
        "reward": float(number % 3 == 0),
        "score": number % 17 / 17,
        "_ng_environment_server": "math_environment_server",
    }


def _write_stopped_run(output: Path, count: int) -> None:
    """As a collector leaves it when it is stopped with one rollout of a hundred still to be run."""
    from nemo_gym.rollouts.indexing import index_fields
    from nemo_gym.rollouts.journal import Completion, done_entry
    from nemo_gym.rollouts.outputs import ResultSet

    results, offset = ResultSet(output), 0
    _write_lines(results.materialized, (_planned(number) for number in range(count)))
    results.failures.touch()
    with output.open("wb") as records, results.journal.open("wb") as journal:
        journal.write(orjson.dumps({"kind": "run", "format": 1, "planned": count}) + b"\n")
        for number in range(count - count // 100):
            record, (task, repeat) = _record(number), divmod(number, REPEATS)
            line = orjson.dumps(record)
            attempt = {"kind": "attempt", "task": task, "repeat": repeat, "attempt": 0, "at": 1.0}
            completion = Completion(
                task, repeat, 0, "measured", reward=record["reward"], seconds=1.0, index=index_fields(record)
            )
            journal.write(orjson.dumps(attempt) + b"\n" + orjson.dumps(done_entry(completion, line, offset)) + b"\n")
            offset += records.write(line + b"\n")
