"""Experiment trackers of a real run, with a stand-in for the tracker's library."""

import json
import os
from pathlib import Path
from shlex import split

from tests.e2e.harness import ROOT, Workplace, question

LIBRARY = """
import json, os
from types import SimpleNamespace

util = SimpleNamespace(VALUE_BYTES_LIMIT=0)
Settings = Table = SimpleNamespace

class Run:
    def __init__(self, arguments):
        self.config = SimpleNamespace(update=lambda values, allow_val_change: self.note("config", values))
        self.note("init", {**arguments, "settings": None, "key": os.environ["WANDB_API_KEY"]})

    def note(self, what, value):
        with open(os.environ["NOTES"], "a") as file:
            file.write(json.dumps([what, value], default=vars) + chr(10))

    def log(self, values, step=None, commit=False):
        self.note("log", [values, step])

    def finish(self):
        self.note("finish", None)

def init(**arguments):
    return Run(arguments)
"""
KEY = "wb-canary-0123456789"


def test_a_run_is_told_to_its_tracker_and_no_other_command_is(place: Workplace, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/wandb.py").write_text(LIBRARY)
    notes = tmp_path / "notes.jsonl"
    environment = {"PYTHONPATH": f"{tmp_path / 'lib'}{os.pathsep}{ROOT}", "NOTES": str(notes), "WB_KEY": KEY}
    place.write_rows("rows.jsonl", [question(number) for number in range(2)])
    tracker = "+wandb_project=p +wandb_name=n +wandb_api_key=${oc.env:WB_KEY}"
    servers = split("--resources-server mcqa --model-type openai_model") + tracker.split()
    assert place.gym("env", "resolve", *servers, **environment).code == 0 and not notes.exists()
    ended = place.gym("eval", "run", *servers, *split("--input rows.jsonl --output r.jsonl"), **environment)
    assert ended.code == 0, ended.err
    told = [json.loads(line) for line in notes.read_text().splitlines()]
    assert [what for what, _ in told[:2]] == ["init", "config"] and told[-1] == ["finish", None]
    assert told[0][1]["key"] == KEY and told[1][1]["wandb_api_key"] == "****"
    assert KEY not in "".join(notes.read_text().splitlines(keepends=True)[1:]) + ended.out + ended.err
    metrics = {name: value for what, logged in told if what == "log" for name, value in logged[0].items()}
    assert metrics["coverage/scored"] == 2 and "key_metrics/mcqa_simple_agent/mean/reward" in metrics
    assert len(metrics["Rollouts"]["data"]) == 2 and "progress/total/rollouts_per_min" in metrics
