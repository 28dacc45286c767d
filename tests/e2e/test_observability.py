"""What a run tells about itself when it is asked to."""

from pathlib import Path
from shlex import split

from tests.e2e.harness import Workplace

OBSERVED = "eval run --resources-server mcqa --model-type openai_model --output out.jsonl --limit 2"
TELEMETRY = "+telemetry.enabled=true +telemetry.exporter=console +telemetry.span_groups=all -v"


def test_records_carry_their_model_calls_and_spans_leave_every_process(place: Workplace, tmp_path: Path) -> None:
    captures = tmp_path / "captures"
    settings = f"+observability_enabled=true +model_call_capture_dir={captures}"
    ended = place.gym(*split(f"{OBSERVED} {settings} {TELEMETRY}"))
    assert ended.code == 0, ended.err
    for record in place.read_rows("out.jsonl"):
        capture, trajectory, perf = (record[name] for name in ("ng_model_call_capture", "ng_trajectory", "ng_perf"))
        assert capture["metrics"]["num_calls"] == 1 and "gaps" not in capture
        assert trajectory["model_calls"][0]["request"]["input"] and trajectory["turns"]
        assert perf["num_turns"] == 1 and perf["token_observability_coverage"] == 1.0
    assert sorted(path.name for path in captures.iterdir()) == ["0-0.capture.jsonl", "1-0.capture.jsonl"]
    told = ended.out + ended.err
    for span in ("gym.job", "gym.rollout", "gym.agent.responses", "gym.verify", "gym.model.responses", "POST /run"):
        assert f'"name": "{span}"' in told, span
    assert '"name": "gym.servers.active"' in told and "key-for-tests" not in told
