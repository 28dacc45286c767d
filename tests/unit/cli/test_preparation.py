"""Scripts that write a data set's rows."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Ended, Gym

CONFIG = """
bench_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: bench}
      model_server: {type: responses_api_models, name: policy_model}
      datasets:
      - name: tiny
        type: benchmark
        jsonl_fpath: benchmarks/tiny/rows.jsonl
        prepare_script: benchmarks/tiny/prepare.py
bench:
  resources_servers: {bench: {entrypoint: app.py, domain: other}}
"""
GOOD = """
from pathlib import Path

def prepare(rows=2):
    path = Path(__file__).with_name("rows.jsonl")
    path.write_text("{}\\n" * rows)
    return path
"""


@pytest.fixture
def prepare(gym: Gym, tmp_path: Path) -> Callable[..., Ended]:
    """Run `gym eval prepare` for a benchmark with the given script."""
    folder = tmp_path / "benchmarks/tiny"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(CONFIG)

    def run(script: str | None, *argv: str) -> Ended:
        if script is not None:
            (folder / "prepare.py").write_text(script)
        return gym("eval", "prepare", "--benchmark", "tiny", *argv)

    return run


def rows(tmp_path: Path) -> int:
    return len((tmp_path / "benchmarks/tiny/rows.jsonl").read_text().splitlines())


def test_a_script_writes_its_rows_with_the_arguments_given(prepare: Callable[..., Ended], tmp_path: Path) -> None:
    ended = prepare(GOOD, "+prepare_script_args={rows: 3}")
    assert ended.code == 0, ended.err
    assert rows(tmp_path) == 3
    assert len(ended.out.splitlines()) == 2 and "tiny of bench_agent" in ended.out


def test_rows_that_are_there_are_kept_on_request(prepare: Callable[..., Ended], tmp_path: Path) -> None:
    assert prepare(GOOD, "+prepare_script_args={rows: 1}").code == 0
    kept = prepare(GOOD, "+use_cached_prepared_benchmarks=true")
    assert kept.code == 0 and rows(tmp_path) == 1
    assert prepare(GOOD).code == 0 and rows(tmp_path) == 2


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (None, "does not exist"),
        ("def other(): ...", "defines no function prepare()"),
        ("async def prepare(): ...", "ordinary function"),
        ("import no_such_package_at_all", "can't be imported: ModuleNotFoundError"),
        ("raise SystemExit(3)", "can't be imported: SystemExit"),
        ("def prepare(): return None", "must return the path"),
        ("def prepare(): return '/tmp/elsewhere.jsonl'", "the config reads benchmarks/tiny/rows.jsonl"),
        ("def prepare(): raise ValueError('no source')", "failed: ValueError: no source"),
    ],
)
def test_a_script_that_cannot_be_used_is_named_with_the_reason(
    prepare: Callable[..., Ended], script: str | None, reason: str
) -> None:
    ended = prepare(script)
    assert ended.code == 1
    assert "benchmarks/tiny/prepare.py" in ended.err and reason in ended.err


def test_nothing_to_prepare_is_an_error(gym: Gym) -> None:
    ended = gym("eval", "prepare")
    assert ended.code == 1 and "Nothing to prepare" in ended.err
