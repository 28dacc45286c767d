"""The files of a result set, and what happens to an older one."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import pytest

from nemo_gym.rollouts.errors import OutputError
from nemo_gym.rollouts.outputs import ResultSet, dated_output
from tests.unit.rollouts.fakes import collect, collection_config, read_jsonl, task


@pytest.mark.parametrize(
    ("output", "stem"), [("r/x.jsonl", "r/x"), ("r/x.jsonl-async", "r/x"), ("r/x", "r/x"), ("r/x.y.jsonl", "r/x.y")]
)
def test_side_files_are_named_after_the_stem(output: str, stem: str) -> None:
    results = ResultSet(Path(output))
    assert str(results.failures) == f"{stem}_failures.jsonl"
    assert str(results.materialized) == f"{stem}_materialized_inputs.jsonl"
    assert str(results.aggregate_metrics) == f"{stem}_aggregate_metrics.json"
    assert str(results.journal) == f"{output}.journal"


async def test_a_second_run_moves_the_whole_older_set_aside_under_one_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """B55"""
    for number in range(3):
        config = collection_config(tmp_path, [task(f"q{number}")], agent_name="math_agent")
        await collect(config)
        for name in ("reward_profiling.jsonl", "quality_summary.json", "rollout_verdicts.jsonl"):
            (tmp_path / f"out_{name}").write_text(f"{number}")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [
            "input.jsonl",
            *(
                f"{name}{suffix}"
                for suffix in ("", ".1", ".2")
                for name in (
                    "out.jsonl",
                    "out.jsonl.journal",
                    "out_failures.jsonl",
                    "out_materialized_inputs.jsonl",
                    "out_aggregate_metrics.json",
                    "out_coverage.json",
                    "out_reward_profiling.jsonl",
                    "out_quality_summary.json",
                    "out_rollout_verdicts.jsonl",
                )
            ),
        ]
    )
    assert [
        read_jsonl(tmp_path / name)[0]["responses_create_params"]["input"]
        for name in ("out.jsonl.1", "out.jsonl.2", "out.jsonl")
    ] == ["q0", "q1", "q2"]
    assert (tmp_path / "out_reward_profiling.jsonl.2").read_text() == "1"
    assert (tmp_path / "out_quality_summary.json.2").read_text() == "1"
    shown = capsys.readouterr().err
    assert f"{tmp_path / 'out.jsonl'} already held results: they are now {tmp_path / 'out.jsonl.2'}." in shown


async def test_a_number_that_any_member_uses_is_skipped(tmp_path: Path) -> None:
    await collect(collection_config(tmp_path, [task("q")], agent_name="math_agent"))
    (tmp_path / "out_failures.jsonl.1").write_text("somebody's")
    await collect(collection_config(tmp_path, [task("q")], agent_name="math_agent"))
    assert (tmp_path / "out.jsonl.2").exists() and not (tmp_path / "out.jsonl.1").exists()


async def test_overwrite_deletes_the_older_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await collect(collection_config(tmp_path, [task("a"), task("b")], agent_name="math_agent"))
    await collect(collection_config(tmp_path, [task("c")], agent_name="math_agent", overwrite=True))
    assert len(read_jsonl(tmp_path / "out.jsonl")) == 1
    assert not list(tmp_path.glob("*.1"))
    assert "already held" not in capsys.readouterr().err


async def test_a_set_without_any_record_is_simply_written_again(tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").touch()
    await collect(collection_config(tmp_path, [task("a")], agent_name="math_agent"))
    assert not list(tmp_path.glob("*.1"))


async def test_missing_folders_are_made(tmp_path: Path) -> None:
    """B57."""
    output = tmp_path / "new" / "dir" / "x.jsonl"
    await collect(collection_config(tmp_path, [task("a")], agent_name="math_agent", output_jsonl_fpath=str(output)))
    assert len(read_jsonl(output)) == 1


def test_places_that_cannot_be_written_are_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B57: before servers are started."""
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=r"The folder .*file/x can't be made \(Not a directory\)"):
        ResultSet(tmp_path / "file" / "x" / "out.jsonl").check_writable()
    with pytest.raises(OutputError, match="is a folder: --output must name a file"):
        ResultSet(tmp_path).check_writable()
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(OutputError, match=r"pipe\.jsonl is a device, not a file"):
        ResultSet(tmp_path / "pipe.jsonl").check_writable()
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    with pytest.raises(OutputError, match="is not writable: choose another --output"):
        ResultSet(tmp_path / "out.jsonl").check_writable()


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("output", ["input.jsonl", "input", "link.jsonl"])
async def test_rows_are_never_replaced_by_their_results(tmp_path: Path, output: str, overwrite: bool) -> None:
    source = "input_materialized_inputs.jsonl" if output == "input" else "input.jsonl"
    config = collection_config(tmp_path, [task("q")], agent_name="math_agent", overwrite=overwrite)
    rows = (tmp_path / "input.jsonl").rename(tmp_path / source)
    (tmp_path / "link.jsonl").symlink_to(rows)
    before = rows.read_bytes()
    changed = {"input_jsonl_fpath": str(rows), "output_jsonl_fpath": str(tmp_path / output)}
    with pytest.raises(OutputError, match=f"{source} is the input, and .* would replace it: choose another --output"):
        await collect(config.model_copy(update=changed))
    assert rows.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([source, "link.jsonl"])


def test_two_runs_never_write_one_set(tmp_path: Path) -> None:
    results = ResultSet(tmp_path / "out.jsonl")
    with results.locked():
        with pytest.raises(OutputError, match=rf"Another run \(process {os.getpid()}\) is writing .*out\.jsonl"):
            results.locked().__enter__()
        with ResultSet(tmp_path / "other.jsonl").locked():
            pass
    with results.locked():
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_output_gets_a_dated_file_that_is_free(tmp_path: Path) -> None:
    now = datetime(2026, 11, 30, 9, 5, 7)
    first = dated_output(tmp_path, "mcqa", now)
    assert first == tmp_path / "mcqa-20261130-090507.jsonl"
    first.touch()
    assert dated_output(tmp_path, "mcqa", now) == tmp_path / "mcqa-20261130-090507-2.jsonl"
