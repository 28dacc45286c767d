"""What a person is told about a result set: how complete it is, and whether it may be gone on with."""

import json
import os
import signal
from collections.abc import Iterator

import pytest

from tests.e2e.harness import Workplace, question
from tests.mock_provider import Fault, MockProvider, Reply, Rule, Script

RUN = ("eval", "run", "--resources-server", "mcqa", "--model-type", "openai_model", "-i", "rows.jsonl")


@pytest.fixture
def stuck(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    """A workplace whose model answers the first row, refuses the second, and never answers the third."""
    rules = (
        Rule("Question 0", (Reply(text="\\boxed{A}"),)),
        Rule("Question 1", (Reply(fault=Fault(status=400)),)),
    )
    with MockProvider(Script(rules=rules, default=(Reply(text="\\boxed{A}", latency=600),))) as mock:
        workplace = Workplace(tmp_path_factory.mktemp("stuck"))
        workplace.write_env(policy_base_url=mock.base_url, policy_api_key="secret-of-tests", policy_model_name="mock")
        workplace.write_rows("rows.jsonl", [question(number) for number in range(3)])
        yield workplace


def test_a_run_of_another_model_is_not_gone_on_with(place: Workplace, provider: MockProvider) -> None:
    """B54, B58: refused before servers are started; asked for, it is on record."""
    place.write_rows("rows.jsonl", [question(0), question(1)])
    assert place.gym(*RUN, "-o", "r.jsonl").code == 0
    first = (place.folder / "r.jsonl").read_bytes().splitlines(keepends=True)[0]
    (place.folder / "r.jsonl").write_bytes(first)
    asked = len(provider.requests)
    resume = (*RUN, "-o", "r.jsonl", "--resume", "--model", "another", "--model-api-key", "a-changed-key")
    refused = place.gym(*resume)
    assert refused.code == 1
    assert "openai_model: mock → another" in refused.error and "key" not in refused.error
    assert "--resume-anyway" in refused.error and "--overwrite" in refused.error
    assert len(provider.requests) == asked and (place.folder / "r.jsonl").read_bytes() == first
    ended = place.gym(*resume, "--resume-anyway")
    assert ended.code == 0, ended.err
    assert "2 asked: 2 measured, 0 failed, 0 unknown" in ended.out
    (difference,) = json.loads((place.folder / "r_coverage.json").read_text())["resumed_anyway"]
    assert "mock → another" in difference
    assert "a-changed-key" not in "".join(path.read_text() for path in place.folder.glob("r*.json*"))


def test_other_rows_or_repeats_are_not_gone_on_with(place: Workplace) -> None:
    place.write_rows("rows.jsonl", [question(0)])
    assert place.gym(*RUN, "-o", "r.jsonl").code == 0
    place.write_rows("rows.jsonl", [question(0), question(1)])
    refused = place.gym(*RUN, "-o", "r.jsonl", "--resume", "--num-repeats", "2")
    assert refused.code == 1
    assert "num_repeats: 1 → 2" in refused.error and "input: rows.jsonl has other rows now" in refused.error


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 75), (signal.SIGHUP, 75)])
def test_a_stopped_run_tells_its_coverage_and_how_to_go_on(stuck: Workplace, number: signal.Signals, code: int) -> None:
    """B92, B111"""
    with stuck.started(*RUN, "-o", "r.jsonl", "--concurrency", "3") as run:
        run.wait_until(lambda: stuck.lines("r.jsonl") == 1 and stuck.lines("r_failures.jsonl") == 1)
        assert run.stop(number) == code
    assert run.text.count("3 asked: 1 measured, 1 failed (provider 1), 1 unknown") == 1
    assert "1 of 3" in run.text and "gym eval run --resources-server mcqa" in run.text and "--resume" in run.text
    assert "secret-of-tests" not in run.text and "Traceback" not in run.text
    assert stuck.lines("r.jsonl") == 1
    assert list(stuck.runs.glob("*/*")) == []


def test_a_killed_run_is_completed_and_counted_as_if_it_had_not_been(place: Workplace) -> None:
    """B53, B54"""
    place.write_rows("rows.jsonl", [question(number) for number in range(40)])
    with place.started(*RUN, "-o", "r.jsonl", "--concurrency", "2") as run:
        run.wait_until(lambda: place.lines("r.jsonl") >= 5)
        assert run.stop(signal.SIGKILL) == -signal.SIGKILL
    ended = place.gym(*RUN, "-o", "r.jsonl", "--resume")
    assert ended.code == 0, ended.err
    assert "40 asked: 40 measured, 0 failed, 0 unknown" in ended.out
    assert sorted(record["_ng_task_index"] for record in place.read_rows("r.jsonl")) == list(range(40))
    entries = place.read_rows("r.jsonl.journal")
    done = sorted(entry["task"] for entry in entries if entry["kind"] == "done")
    assert done == list(range(40)), "one outcome each"


def test_two_runs_never_write_one_file(stuck: Workplace) -> None:
    """B53: the second is told who is there, before it starts anything."""
    with stuck.started(*RUN, "-o", "r.jsonl", "--concurrency", "3") as run:
        run.wait_until(lambda: stuck.lines("r.jsonl") == 1)
        second = stuck.gym(*RUN, "-o", "r.jsonl", "--overwrite")
        assert second.code == 1
        assert "Another run (process " in second.error and "is writing r.jsonl" in second.error
        (pid,) = [word.rstrip(")") for word in second.error.split() if word.rstrip(")").isdigit()]
        assert os.path.exists(f"/proc/{pid}")  # noqa: PTH110
        run.stop(signal.SIGTERM)
    assert stuck.lines("r.jsonl") == 1


def test_completeness_can_be_required(stuck: Workplace) -> None:
    """B92"""
    stuck.write_rows("rows.jsonl", [question(0), question(1)])
    ended = stuck.gym(*RUN, "-o", "r.jsonl", "--require-complete")
    assert ended.code == 1
    assert "2 asked: 1 measured, 1 failed (provider 1), 0 unknown" in ended.out
    assert "EVAL FAILED: 1/2 samples completed" in ended.error


def test_a_run_without_output_ends_in_a_file_of_its_own(place: Workplace) -> None:
    """B55"""
    place.write_env(**{**_env(place), "results_dir": str(place.folder / "results")})
    place.write_rows("rows.jsonl", [question(0)])
    for count in (1, 2):
        ended = place.gym(*RUN)
        assert ended.code == 0, ended.err
        files = [path for path in (place.folder / "results").glob("mcqa*.jsonl") if path.stem.count("_") < 3]
        written = [line.removeprefix("Rollouts: ") for line in ended.out.splitlines() if line.startswith("Rollouts: ")]
        assert len(written) == 1 and place.lines(written[0]) == 1
        assert len(files) == count, files


def test_shards_are_scored_together_with_one_coverage(place: Workplace) -> None:
    """B111"""
    start = ("env", "start", "--resources-server", "mcqa", "--model-type", "openai_model")
    with place.started(*start) as servers:
        servers.wait_for("All 3 / 3 servers ready!")
        for number in range(2):
            rows = [{**question(n), "_ng_task_index": n} for n in (2 * number, 2 * number + 1)]
            place.write_rows("rows.jsonl", rows)
            wanted = ("--agent", "mcqa_simple_agent", "-i", "rows.jsonl", "-o", f"part-{number}.jsonl")
            ended = place.gym("eval", "run", "--no-serve", *wanted)
            assert ended.code == 0, ended.err
        ended = place.gym("eval", "aggregate", "-i", "part-?.jsonl", "-o", "all.jsonl", "--require-complete")
        assert ended.code == 0, ended.err
        assert "4 asked: 4 measured, 0 failed, 0 unknown" in ended.out.splitlines()
        twice = place.gym("eval", "aggregate", "-i", "part-?.jsonl,all.jsonl", "-o", "more.jsonl")
        assert twice.code == 1
        assert "4 records repeat a rollout" in twice.error and "--merge-anyway" in twice.error
        servers.stop(signal.SIGTERM)


def _env(place: Workplace) -> dict[str, str]:
    import yaml

    content = yaml.safe_load((place.folder / "env.yaml").read_text())
    return {name: value for name, value in content.items() if name != "head_server"}
