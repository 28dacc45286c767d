"""`python -m tests.bench [--only CASE …] [--quick]`: prints a table and writes results/bench/<date>.json."""

import argparse
import datetime
from collections.abc import Callable
from pathlib import Path

from tests.bench import commands, flight, machine, payloads, records, report, servers, shares
from tests.bench.report import Figure

ROOT = Path(__file__).parents[2]
CASES: dict[str, Callable[..., list[Figure]]] = {
    "cli": commands.cli,
    "import": commands.imports,
    "start": servers.start,
    "first-build": servers.first_build,
    "single": servers.single,
    "single-shared": servers.single_shared,
    "shares": shares.shares,
    "tools": payloads.tools,
    "tokens": payloads.tokens,
    "model": payloads.model,
    "collector": records.collector,
    "aggregate": records.aggregate,
    "resume": records.resume,
    "flight": flight.flight,
    "curves": servers.curves,
    "latency": flight.latency,
}
FOR_PICTURES = {"curves", "latency"}
"""Only when asked for: they take long, and `tests.bench.pictures` draws them."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--only", action="append", choices=sorted(CASES), help="run this case (repeatable)")
    parser.add_argument("--quick", action="store_true", help="a smoke run: fewer repeats, figures not to be quoted")
    options = parser.parse_args()
    facts = machine.facts()
    figures: list[Figure] = []
    for name in options.only or [name for name in CASES if name not in FOR_PICTURES]:
        print(f"… {name}", flush=True)
        figures += CASES[name](ROOT, quick=options.quick)
    report.print_table(figures, facts)
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H%M%SZ")
    path = ROOT / "results" / "bench" / f"{stamp}.json"
    report.write(figures, facts, path)
    print(f"written to {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
