"""The environments of this checkout: their files agree, and their loaders make rows that their verifiers read."""

import json
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from environments.code_gen import prepare as code_gen
from environments.workplace_assistant import prepare as workplace_assistant
from nemo_gym import data_preparation
from nemo_gym.config.roots import PARENT_DIR
from nemo_gym.data_preparation import PreparationError, run_preparation, write_rows
from nemo_gym.environment.manifest import load_manifest
from nemo_gym.environment.validation import validate_environment
from nemo_gym.sandbox.providers.namespaces.availability import isolation
from nemo_gym.verifier_fixture import exercise_verifier_fixture

MANIFESTS = sorted((PARENT_DIR / "environments").glob("**/manifest.yaml"))
RUNS_PROGRAMS = {"code_gen"}
NEEDS_PACKAGE = {"reasoning_gym": "reasoning_gym"}
INPUT = [{"role": "user", "content": "Do it."}]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.parent.name)
def test_an_environments_files_agree(path: Path) -> None:
    report = validate_environment(path)
    assert report.declared_profile == report.inferred_profile or report.inferred_profile is None
    assert any(each.type == "example" and each.rows == 5 for each in report.datasets)


def test_every_environment_has_a_manifest() -> None:
    folders = {path.parent for path in (PARENT_DIR / "environments").glob("*/config.yaml")}
    assert folders and folders == {path.parent for path in MANIFESTS}


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.parent.name)
async def test_an_environments_verifier_does_what_its_cases_say(path: Path) -> None:
    """As `gym env test NAME` does it, in this process: those with packages of their own are skipped without them."""
    manifest = load_manifest(path)
    if manifest.resources_server in RUNS_PROGRAMS and isolation().refusal:
        pytest.skip(isolation().refusal)
    package = NEEDS_PACKAGE.get(manifest.resources_server or "")
    if package is not None and find_spec(package) is None:
        pytest.skip(f"{package} is for the environment's own venv")
    app = import_module(f"resources_servers.{manifest.resources_server}.app")
    reward_range = manifest.reward.range
    assert reward_range is not None and manifest.reward.higher_is_better
    seen = await exercise_verifier_fixture(
        app.VERIFIER_FIXTURE, reward_range=reward_range, determinism=manifest.determinism
    )
    assert len(seen) >= 3


@pytest.mark.parametrize("name", ["arc_agi", "code_gen", "workplace_assistant"])
def test_the_example_rows_are_those_of_the_server(name: str) -> None:
    own, servers = (PARENT_DIR / tree / name / "data" for tree in ("environments", "resources_servers"))
    assert (own / "example.jsonl").read_bytes() == (servers / "example.jsonl").read_bytes()
    rollouts = [json.loads(line) for line in (own / "example_rollouts.jsonl").read_text().splitlines()]
    assert len(rollouts) == 5 and {rollout["agent_ref"]["name"] for rollout in rollouts} == {f"{name}_simple_agent"}
    metrics = json.loads((own / "example_metrics.json").read_text())
    assert metrics["Number of examples"] == 5 and metrics["jsonl_fpath"] == f"environments/{name}/data/example.jsonl"


CALL = {"name": "email_delete_email", "arguments": "{}"}


@pytest.mark.parametrize(
    "source",
    [
        {"responses_create_params": {"input": INPUT}, "ground_truth": [CALL], "id": 7},
        {
            "responses_create_params": json.dumps({"input": INPUT}),
            "verifier_metadata": {"ground_truth": [CALL], "id": 7},
        },
        {"messages": INPUT, "ground_truth": json.dumps([CALL]), "id": 7, "category": None},
    ],
)
def test_office_tasks_have_their_ground_truth_where_the_verifier_looks(source: dict[str, Any]) -> None:
    """Spec 50: upstream's loader put it where every verify answered 422."""
    row = workplace_assistant.as_row(source)
    assert (row["ground_truth"], row["id"], "category" in row) == ([CALL], 7, False)
    assert row["responses_create_params"]["input"] == INPUT
    assert len(row["responses_create_params"]["tools"]) == 27


def test_tools_a_row_offers_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"input": INPUT, "tools": [{"type": "function", "name": "x"}]}
    row = workplace_assistant.as_row({"responses_create_params": own, "ground_truth": []})
    assert [tool["name"] for tool in row["responses_create_params"]["tools"]] == ["x"]


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ({"ground_truth": [CALL]}, "Row 3 has no prompt"),
        ({"messages": INPUT, "ground_truth": '"x"'}, "Row 3 has no ground"),
    ],
)
def test_office_tasks_that_cannot_be_used_are_named(source: dict[str, Any], told: str) -> None:
    with pytest.raises(PreparationError, match=told):
        workplace_assistant.as_row(source, 3)


TESTS = {"inputs": ["1"], "outputs": ["1"]}


@pytest.mark.parametrize(
    "source",
    [
        {"responses_create_params": {"input": INPUT}, "verifier_metadata": {"unit_tests": {**TESTS, "fn_name": None}}},
        {"responses_create_params": {"input": INPUT}, "verifier_metadata": {"unit_tests": json.dumps(TESTS)}},
        {"responses_create_params": json.dumps({"input": INPUT}), "unit_tests": TESTS},
    ],
)
def test_programming_problems_have_their_tests_as_data(source: dict[str, Any]) -> None:
    row = code_gen.as_row({**source, "hash_id": "h", "other": 1})
    assert row["verifier_metadata"] == {"unit_tests": TESTS} and row["hash_id"] == "h" and "other" not in row


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ({"unit_tests": TESTS}, "Row 2 has no prompt"),
        ({"responses_create_params": {"input": INPUT}}, "Row 2 has no unit"),
    ],
)
def test_programming_problems_that_cannot_be_used_are_named(source: dict[str, Any], told: str) -> None:
    with pytest.raises(PreparationError, match=told):
        code_gen.as_row(source, 2)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """A stand-in for the hub's library: what was asked of it. It has three programming problems."""
    asked: list[tuple[Any, ...]] = []

    def load_dataset(*args: Any, **options: Any) -> list[dict[str, Any]]:
        asked.append((*args, options))
        return [{"responses_create_params": {"input": INPUT}, "unit_tests": TESTS, "hash_id": str(n)} for n in range(3)]

    module = ModuleType("datasets")
    module.load_dataset = load_dataset  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", module)
    return asked


def test_a_loader_fetches_what_is_asked(
    hub: list[tuple[Any, ...]], project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = project / "data/rows.jsonl"
    monkeypatch.setattr("sys.argv", ["prepare.py", "--split", "validation", "--output", str(out), "--limit", "2"])
    run_preparation(code_gen.prepare, description="x", splits=("train", "validation"))
    assert hub == [(code_gen.REPOSITORY, None, {"split": "validation", "streaming": True})]
    assert [json.loads(line)["hash_id"] for line in out.read_text().splitlines()] == ["0", "1"]
    assert capsys.readouterr().out == f"Written: {out}\n"


def test_rows_are_numbered_from_1_for_whoever_reads_the_error(hub: list[tuple[Any, ...]], project: Path) -> None:
    seen: list[int] = []

    def as_row(row: dict[str, Any], number: int) -> dict[str, Any]:
        seen.append(number)
        return row

    path = project / "rows.jsonl"
    assert data_preparation.fetch_rows("o/n", as_row, path, split="train") == path
    assert seen == [1, 2, 3] and len(path.read_text().splitlines()) == 3


def test_a_loader_without_the_hubs_library_says_what_to_install(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    monkeypatch.setattr("sys.argv", ["prepare.py", "--output", str(project / "x.jsonl")])
    with pytest.raises(SystemExit) as ended:
        run_preparation(code_gen.prepare, description="x")
    assert ended.value.code == 1 and "uv pip install datasets" in capsys.readouterr().err
    assert not list(project.iterdir())


def test_rows_are_written_in_whole_or_not_at_all(project: Path) -> None:
    path = project / "rows.jsonl"
    path.write_text("old\n")

    def broken() -> Any:
        yield {"a": 1}
        raise PreparationError("broken")

    empty: list[dict[str, Any]] = []
    for rows in (broken(), empty):
        with pytest.raises(PreparationError):
            write_rows(path, rows)
    assert path.read_text() == "old\n" and list(project.iterdir()) == [path]
    assert write_rows(path, [{"a": "ä"}]) == 1 and path.read_text() == '{"a": "ä"}\n'


def test_an_unreadable_data_set_is_told_by_name(hub: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*args: Any, **options: Any) -> Any:
        raise ConnectionError("no network")

    monkeypatch.setattr("datasets.load_dataset", gone)
    with pytest.raises(PreparationError, match=r"o/n \(split train\) can't be read: no network"):
        list(data_preparation.hub_rows("o/n", split="train"))
