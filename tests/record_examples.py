"""`python -m tests.record_examples <server>[/<flavour>]`: record example data with scripted replies.

`tests/<prefix>example_replies.json` of the server holds, for each row of `data/<prefix>example.jsonl`, a reply of the
mock provider (tests/mock_provider/README.md) or a list of them, in the order in which they are asked for: the turns of
the model, then what a judge that is the policy model says. Written are `<prefix>example_rollouts.jsonl` and
`<prefix>example_metrics.json` beside the rows.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from tests.mock_provider import MockProvider
from tests.mock_provider.script import Script, parse_script
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[1]
GYM = (sys.executable, "-c", "from nemo_gym.cli.main import main; main()")


class RecordingError(Exception):
    """Example data can't be recorded; the message says why."""


def script_of(replies: Path, rows: int) -> Script:
    """The replies for all rows, in the order in which they are asked for. Raises RecordingError."""
    try:
        by_row: list[Any] = json.loads(replies.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RecordingError(f"{replies} can't be read: {error}") from error
    if not isinstance(by_row, list) or len(by_row) != rows:
        raise RecordingError(f"{replies} must be a list with an entry for each of the {rows} example rows")
    flat = list(chain.from_iterable(entry if isinstance(entry, list) else [entry] for entry in by_row))
    spent = {"fault": {"status": 400, "message": f"{replies.name} has no more replies"}}
    return parse_script({"model": "scripted", "replies": flat, "default": spent})


def record(selector: str, prefix: str = "", more: Sequence[str] = ()) -> Path:
    """Write the example data of `<server>[/<flavour>]`, and return the rollouts' path. Raises RecordingError."""
    folder = ROOT / "resources_servers" / selector.partition("/")[0]
    rows, rollouts = (folder / "data" / f"{prefix}example{end}.jsonl" for end in ("", "_rollouts"))
    count = sum(1 for line in rows.read_text(encoding="utf-8").splitlines() if line.strip())
    script = script_of(folder / "tests" / f"{prefix}example_replies.json", count)
    with tempfile.TemporaryDirectory() as place, MockProvider(script) as model:
        output = Path(place, "rollouts.jsonl")
        policy = ("--model-type", "openai_model", "--model-url", model.base_url, "--model-api-key", "none", "--model",
                  "scripted", f"+head_server.port={free_port()}")  # fmt: skip
        files = ("--input", str(rows), "--output", str(output), "--concurrency", "1")
        _gym("eval", "run", "--resources-server", selector, *policy, *files, *more)
        shutil.copyfile(output, rollouts)
        collated = ("--mode", "example_validation", "--output-dir", str(Path(place, "collated")))
        _gym("dataset", "collate", "--resources-server", selector, *collated, "+overwrite_metrics_conflicts=true")
    return rollouts


def _gym(*argv: str) -> None:
    ended = subprocess.run([*GYM, *argv], cwd=ROOT, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise RecordingError(f"gym {' '.join(argv[:2])} ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.record_examples", description=__doc__)
    parser.add_argument("server", help="a resources server, or <server>/<flavour>")
    parser.add_argument("--prefix", default="", help="of the files' names, as in lc_judge_example.jsonl")
    arguments, more = parser.parse_known_args()
    try:
        path = record(arguments.server, arguments.prefix, more)
    except RecordingError as error:
        print(error, file=sys.stderr)
        return 1
    rewards = [json.loads(line)["reward"] for line in path.read_text(encoding="utf-8").splitlines()]
    print(f"{path.relative_to(ROOT)}: rewards {rewards}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
