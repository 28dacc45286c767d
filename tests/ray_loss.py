"""`python -m tests.ray_loss`: nodes lost under a run in every way, told in docs/reports/<date>-ray-node-loss.md."""

from __future__ import annotations

import argparse
import datetime
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.bench import machine
from tests.e2e.harness import Background, Workplace
from tests.mock_provider import MockProvider
from tests.ray.cluster import RAY_ENVIRONMENT, LocalCluster, local_cluster
from tests.ray.conftest import COUNTING
from tests.ray.runs import SERVERS, assert_complete, on, write_rows

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "reports"
ROWS, IN_FLIGHT, BEFORE = 60, 6, 6
RUN = ("eval", "run", *SERVERS, "-i", "rows.jsonl", "-o", "r.jsonl", "--concurrency", str(IN_FLIGHT))


@dataclass
class Outcome:
    name: str
    seconds: dict[str, float] = field(default_factory=dict)
    retries: int = 0
    retried_most: int = 0
    problem: str = ""


Injection = Callable[[LocalCluster, Background], list[psutil.Process]]


def nothing(cluster: LocalCluster, run: Background) -> list[psutil.Process]:
    return []


def lose(node: int) -> Injection:
    def inject(cluster: LocalCluster, run: Background) -> list[psutil.Process]:
        cluster.lose(cluster.addresses[node])
        return []

    return inject


def freeze(node: int) -> Injection:
    def inject(cluster: LocalCluster, run: Background) -> list[psutil.Process]:
        return cluster.freeze(cluster.addresses[node])

    return inject


def lose_two(cluster: LocalCluster, run: Background) -> list[psutil.Process]:
    """A second node is lost once the servers of the first serve again."""
    cluster.lose(cluster.addresses[0])
    run.wait_for("serves again")
    cluster.lose(cluster.addresses[1])
    return []


CASES: dict[str, tuple[int, Injection]] = {
    "nothing is lost": (2, nothing),
    "of two nodes the one with resources and model server": (2, lose(0)),
    "of two nodes the one with the agent": (2, lose(1)),
    "of two nodes one is cut off (every process of it stopped)": (2, freeze(0)),
    "of three nodes two, one after the other": (3, lose_two),
}


def trial(name: str) -> Outcome:
    """One run on a cluster of its own."""
    nodes, inject = CASES[name]
    outcome = Outcome(name)
    folder = Path(tempfile.mkdtemp(prefix="gym-ray-loss-"))
    try:
        with MockProvider(COUNTING) as provider, local_cluster(nodes) as cluster:
            place = Workplace(folder)
            place.write_env(policy_base_url=provider.base_url, policy_api_key="k", policy_model_name="mock")
            write_rows(place, ROWS)
            _run(place, cluster, inject, outcome)
    except AssertionError as error:
        outcome.problem = str(error).splitlines()[0][:300] or "an assertion failed"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return outcome


def _run(place: Workplace, cluster: LocalCluster, inject: Injection, outcome: Outcome) -> None:
    begun = time.monotonic()
    frozen: list[psutil.Process] = []
    with place.started(*RUN, *on(cluster), **RAY_ENVIRONMENT) as run:
        try:
            run.wait_for("All 3 / 3 servers ready!")
            outcome.seconds["ready"] = time.monotonic() - begun
            run.wait_until(lambda: place.lines("r.jsonl") >= BEFORE)
            lost_at = time.monotonic()
            frozen = inject(cluster, run)
            if inject is not nothing:
                run.wait_for("moves to node")
                outcome.seconds["moved after"] = time.monotonic() - lost_at
                run.wait_for("serves again")
                outcome.seconds["serves after"] = time.monotonic() - lost_at
            assert run.ended() == 0, run.text
            outcome.seconds["whole run"] = time.monotonic() - begun
            assert_complete(place, run.text, ROWS)
        finally:
            for process in frozen:
                if process.is_running():
                    process.send_signal(signal.SIGKILL)
    retries = [int(number) for number in re.findall(r"Retry (\d+) of rollout", run.text)]
    outcome.retries, outcome.retried_most = len(retries), max(retries, default=0)


def lines(outcomes: Sequence[Outcome], today: str) -> Iterator[str]:
    failed = sum(bool(outcome.problem) for outcome in outcomes)
    facts = ", ".join(f"{name} {value}" for name, value in machine.facts().items())
    yield f"# Nodes lost under a run with `placement: ray`, {today}\n"
    yield f"`python -m tests.ray_loss`: {len(outcomes)} runs, {failed} failed. Machine: {facts}.\n"
    yield (
        f"Each run is `gym eval run` of {ROWS} rollouts with a session each (two model calls of 0.3 s, a tool call, "
        f"verify), {IN_FLIGHT} in flight, on a Ray cluster of several real nodes on one machine, at loopback addresses "
        f"of their own, with a head that takes no servers. The node is killed with every process on it once {BEFORE} "
        f"rollouts are done. Passed means: exit code 0, every rollout in the file once, every reward 1, nothing failed "
        f"or unknown.\n"
    )
    names = ["ready", "moved after", "serves after", "whole run"]
    yield f"| lost | outcome | {' | '.join(f'{name}, s' for name in names)} | retries | most of one rollout |"
    yield "|---|---|--:|--:|--:|--:|--:|--:|"
    for outcome in outcomes:
        seconds = " | ".join(f"{outcome.seconds[name]:.1f}" if name in outcome.seconds else "–" for name in names)
        verdict = outcome.problem or "passed"
        yield f"| {outcome.name} | {verdict} | {seconds} | {outcome.retries} | {outcome.retried_most} |"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.ray_loss", description=__doc__)
    parser.add_argument("--no-report", action="store_true", help="write no report")
    options = parser.parse_args()
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        del os.environ[name]
    outcomes = []
    for name in CASES:
        outcomes.append(trial(name))
        print(outcomes[-1], file=sys.stderr)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    text = "\n".join(lines(outcomes, today)) + "\n"
    print(text)
    if not options.no_report:
        (FOLDER / f"{today}-ray-node-loss.md").write_text(text, encoding="utf-8")
    return 1 if any(outcome.problem for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
