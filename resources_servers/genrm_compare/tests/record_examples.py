"""`python -m resources_servers.genrm_compare.tests.record_examples`: record the example data with scripted replies.

`example_replies.json` holds, for each example row, the answers of its two rollouts and what the reward model says of
them, which here is another server than the policy's and needs no GPU.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from tests.mock_provider import MockProvider
from tests.mock_provider.script import Script, parse_script
from tests.ports import free_port
from tests.record_examples import ROOT, RecordingError, _gym

FOLDER = Path(__file__).parents[1]
SERVER = "++genrm_compare.resources_servers.genrm_compare"
JUDGE = """\
genrm_model:
  responses_api_models:
    _delete_key: genrm_model
    openai_model:
      entrypoint: app.py
      openai_base_url: {url}
      openai_api_key: none
      openai_model: scripted
"""


def record() -> Path:
    """Write the example data and return the rollouts' path. Raises RecordingError."""
    replies: list[dict[str, Any]] = json.loads((FOLDER / "tests" / "example_replies.json").read_text(encoding="utf-8"))
    rows, rollouts = (FOLDER / "data" / f"example{end}.jsonl" for end in ("", "_rollouts"))
    questions = [json.loads(line)["responses_create_params"]["input"][0]["content"] for line in rows.open()]
    answers = [(question, reply["answers"]) for question, reply in zip(questions, replies, strict=True)]
    verdicts = [(question, [reply["scores"]]) for question, reply in zip(questions, replies, strict=True)]
    with (
        tempfile.TemporaryDirectory() as place,
        MockProvider(_script(answers)) as policy,
        MockProvider(_script(verdicts)) as judge,
    ):
        config, output = Path(place, "judge.yaml"), Path(place, "rollouts.jsonl")
        config.write_text(JUDGE.format(url=judge.base_url), encoding="utf-8")
        model = ("--model-type", "openai_model", "--model-url", policy.base_url, "--model-api-key", "none", "--model",
                 "scripted")  # fmt: skip
        group = (f"{SERVER}.num_rollouts_per_prompt=2", f"{SERVER}.comparison_strategy=all_pairs",
                 f"+head_server.port={free_port()}")  # fmt: skip
        files = ("--input", str(rows), "--output", str(output), "--concurrency", "2", "--num-repeats", "2")
        chosen = ("--resources-server", "genrm_compare", "--config", str(config))
        _gym("eval", "run", *chosen, *model, *files, *group)
        _check(output, answers)
        shutil.copyfile(output, rollouts)
        collated = ("--mode", "example_validation", "--output-dir", str(Path(place, "collated")))
        _gym(
            "dataset", "collate", "--resources-server", "genrm_compare", *collated, "+overwrite_metrics_conflicts=true"
        )
    return rollouts


def _script(replies: list[tuple[str, list[str]]]) -> Script:
    rules = [{"contains": question, "first": texts, "reply": texts[-1]} for question, texts in replies]
    return parse_script({"model": "scripted", "when": rules})


def _check(output: Path, answers: list[tuple[str, list[str]]]) -> None:
    """Both rollouts of a row are asked for at once; each must have got the answer that is meant for it."""
    for line in output.read_text(encoding="utf-8").splitlines():
        rollout = json.loads(line)
        said = rollout["response"]["output"][-1]["content"][0]["text"]
        if said != answers[rollout["_ng_task_index"]][1][rollout["_ng_rollout_index"]]:
            raise RecordingError("two rollouts came the other way round; run it again")


if __name__ == "__main__":
    print(f"{record().relative_to(ROOT)} is written")
