"""The one command of the README: a real model answers real tasks and is scored."""

import json
from pathlib import Path
from shlex import split

import pytest

from tests.e2e.harness import ROOT, Workplace

EMBEDDED = ROOT / "responses_api_models/llama_cpp_model"


@pytest.mark.skipif(
    not (EMBEDDED / ".venv/bin/python").exists(), reason="needs what the README's first command downloads"
)
def test_the_embedded_model_answers_the_shipped_tasks(tmp_path: Path) -> None:
    place = Workplace(tmp_path)
    place.write_env()
    ended = place.gym(*split("eval run --resources-server mcqa --output results/mcqa.jsonl --limit 5"))
    assert ended.code == 0, ended.err
    assert "[3] policy_model (responses_api_models/llama_cpp_model)" in ended.out
    assert "demonstration" in ended.err and "example rows" in ended.err
    records = place.read_rows("results/mcqa.jsonl")
    assert len(records) == 5
    assert sum(record["reward"] for record in records) >= 1
    (entry,) = json.loads((tmp_path / "results/mcqa_aggregate_metrics.json").read_text())
    assert entry["key_metrics"]["mean/reward"] == pytest.approx(sum(r["reward"] for r in records) / 5)


def test_the_embedded_model_is_one_file_of_the_config_like_any_other(tmp_path: Path) -> None:
    place = Workplace(tmp_path)
    place.write_env()
    chosen = split("env resolve --resources-server mcqa --model-type llama_cpp_model")
    assert "llama_cpp_model" in place.gym(*chosen).out
    unnamed = place.gym(*split("env resolve --resources-server mcqa"))
    assert unnamed.code == 1 and "--model-type" in unnamed.error


def test_a_named_model_replaces_the_embedded_one(tmp_path: Path) -> None:
    place = Workplace(tmp_path)
    place.write_env(policy_base_url="", policy_api_key="k", policy_model_name="m")
    line = split("env start --resources-server mcqa --model-type openai_model +dry_run=true")
    emptied = place.gym(*line)
    assert emptied.code == 1 and "policy_base_url" in emptied.error
    assert "llama_cpp_model" not in emptied.out + emptied.err
