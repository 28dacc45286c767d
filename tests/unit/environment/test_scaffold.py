"""`gym env init`'s files: what is made, what is left alone, and that it passes its own checks and tests."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from nemo_gym.config.roots import NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME, PARENT_DIR
from nemo_gym.config.task_data import load_task_data_schema, validate_jsonl_rows
from nemo_gym.environment.errors import ScaffoldConflictError, ScaffoldError
from nemo_gym.environment.manifest import IntegrationProfile, load_manifest
from nemo_gym.environment.scaffold import scaffold_environment, scaffold_resources_server
from nemo_gym.environment.scaffold_files import ScaffoldResult
from nemo_gym.environment.validation import validate_environment, validated
from nemo_gym.environment.verifier_run import RunnerRequest, VerifierSpec, run_in
from nemo_gym.environment_audit import audit
from tests.unit.environment.conftest import Write

PROFILES = [profile.value for profile in IntegrationProfile]
SERVER_FILES = {
    "__init__.py",
    "app.py",
    "task_data.py",
    "configs/sums.yaml",
    "requirements.txt",
    "tests/__init__.py",
    "tests/test_app.py",
    "tests/verifier_cases.jsonl",
    "audit.py",
    "README.md",
    "data/example.jsonl",
    "data/.gitignore",
}


def reusing(
    verifier: str, *, kind: str = "environment", name: str = "words", profile: str = PROFILES[0]
) -> ScaffoldResult:
    """A workload whose verifier is somebody else's."""
    return scaffold_environment(
        kind=kind,
        name=name,
        profile=profile,
        reuse_verifier=verifier,
        reward_range=(-1.0, 1.0),
        higher_is_better=False,
    )


def relative(paths: tuple[Path, ...], folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in paths}


def test_a_server_has_all_a_component_needs(project: Path) -> None:
    result = scaffold_resources_server(Path("resources_servers/sums"))
    assert result.asset_dir == project / "resources_servers/sums"
    assert relative(result.created, result.asset_dir) == SERVER_FILES and not result.existing
    rows = [json.loads(line) for line in (result.asset_dir / "data/example.jsonl").read_text().splitlines()]
    assert len(rows) == 5 and all(row["expected_answer"] and row["responses_create_params"]["input"] for row in rows)
    config = yaml.safe_load((result.asset_dir / "configs/sums.yaml").read_text())
    assert list(config) == ["sums_resources_server", "sums_simple_agent", "sums_environment_server"]
    datasets = config["sums_resources_server"]["resources_servers"]["sums"]["datasets"]
    assert [(each["type"], each["num_repeats"], each.get("license")) for each in datasets] == [
        ("train", 1, "Apache 2.0"),
        ("validation", 1, "Apache 2.0"),
        ("example", 1, None),
    ]


def test_a_server_runs_on_the_checkout_that_made_it(project: Path) -> None:
    folder = scaffold_resources_server(Path("resources_servers/sums")).asset_dir
    line = (folder / "requirements.txt").read_text()
    assert line.startswith("-e nemo-gym[dev] @ ../")
    assert (folder / line.strip().rpartition(" ")[2]).resolve() == PARENT_DIR.resolve()
    assert (
        "@ ../../\n"
        in (
            scaffold_resources_server(Path("resources_servers/other"), checkout_root=project).asset_dir
            / "requirements.txt"
        ).read_text()
    )


def test_what_was_made_once_is_made_no_second_time(project: Path) -> None:
    made = scaffold_resources_server(Path("resources_servers/sums"))
    again = scaffold_resources_server(Path("resources_servers/sums"))
    assert again.created == () and set(again.existing) == set(made.created)
    (made.asset_dir / "README.md").unlink()
    assert relative(scaffold_resources_server(Path("resources_servers/sums")).created, made.asset_dir) == {"README.md"}


def test_nothing_is_written_where_something_is_in_the_way(project: Path, write: Write, tmp_path: Path) -> None:
    write("resources_servers/sums/app.py", "mine\n")
    write("resources_servers/sums/tests", "a file\n")
    (project / "resources_servers/sums/README.md").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ScaffoldConflictError) as raised:
        scaffold_resources_server(Path("resources_servers/sums"))
    told = str(raised.value)
    assert "app.py exists and is different" in told and "tests is a file" in told and "README.md is a symbolic" in told
    assert {path.name for path in (project / "resources_servers/sums").iterdir()} == {"app.py", "tests", "README.md"}


def test_a_link_on_the_way_is_in_the_way(project: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (project / "environments").symlink_to(tmp_path / "outside")
    with pytest.raises(ScaffoldConflictError, match="environments is a symbolic link"):
        scaffold_environment(kind="environment", name="words")
    assert not list((tmp_path / "outside").iterdir())


@pytest.mark.parametrize("name", ["Words", "a b", "../x", "class", ".x", ""])
def test_a_name_must_be_one_a_folder_can_have(name: str) -> None:
    with pytest.raises(ScaffoldError, match="no good name"):
        scaffold_environment(kind="environment", name=name)


def test_code_needs_a_name_python_can_import(project: Path) -> None:
    with pytest.raises(ScaffoldError, match="Python module"):
        scaffold_environment(kind="environment", name="word-game")
    scaffold_resources_server(Path("resources_servers/sums"))
    made = reusing("sums", name="word-game")
    assert validate_environment(made.asset_dir / "manifest.yaml").name == "word-game"


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("kind", ["environment", "benchmark"])
@pytest.mark.parametrize("reuse", [None, "sums"])
def test_every_scaffold_is_valid_as_it_is(project: Path, kind: str, profile: str, reuse: str | None) -> None:
    scaffold_resources_server(Path("resources_servers/sums"))
    if reuse is None:
        made = scaffold_environment(kind=kind, name="words", profile=profile)
    else:
        made = reusing(reuse, kind=kind, profile=profile)
    environment = validated(made.asset_dir / "manifest.yaml")
    report, manifest = environment.report, environment.manifest
    assert report.warnings == [] and report.inferred_profile in (None, profile)
    assert manifest.resources_server == (reuse or "words")
    assert (manifest.reward.range, manifest.reward.higher_is_better) == (
        ((-1.0, 1.0), False) if reuse else ((0.0, 1.0), True)
    )
    assert [(each.name, each.type, each.rows) for each in report.datasets] == [
        ("words", "benchmark" if kind == "benchmark" else "example", 5)
    ]
    own_agent = profile in ("custom-gym-agent-loop", "external-agent-loop")
    assert manifest.agent_server == ("words_agent" if own_agent else "simple_agent")
    assert (project / "responses_api_agents/words_agent/app.py").exists() == own_agent
    assert (project / "resources_servers/words").exists() == (reuse is None)
    assert (made.asset_dir / "rollout_driver.py").exists() == (profile == "external-rollout-driver")


def test_a_reused_verifier_runs_one_agent_on_one_data_set(project: Path) -> None:
    """Spec 10 §18.14: upstream's reused server kept its own data sets, which then won."""
    scaffold_resources_server(Path("resources_servers/sums"))
    for profile in ("custom-gym-verifier", "custom-gym-agent-loop"):
        name = profile.replace("-", "_")
        made = reusing("sums", name=name, profile=profile)
        composition = validated(made.asset_dir / "manifest.yaml").composition
        assert composition.owner.name == composition.agent.name == f"{name}_agent"
        assert (
            sum(
                "responses_api_agents" in (entry or {}) and bool(entry["responses_api_agents"])
                for entry in composition.config.values()
                if hasattr(entry, "keys")
            )
            == 1
        )


def test_names_that_a_reused_config_takes_are_avoided(project: Path) -> None:
    folder = scaffold_resources_server(Path("resources_servers/sums")).asset_dir
    config = folder / "configs/sums.yaml"
    config.write_text(config.read_text().replace("sums_simple_agent", "words_agent"))
    made = reusing("sums", name="words")
    composition = validated(made.asset_dir / "manifest.yaml").composition
    assert composition.agent.name == "words_catalog_agent"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("sums:\n      entrypoint", "other:\n      entrypoint"), "one resources server of the kind sums"),
        (
            (
                "      domain: other",
                "      domain: other\nm: {responses_api_models: {m: {entrypoint: a}}}\nx: {y: {z: ",
            ),
            None,
        ),
        (("    simple_agent:", "    other_agent:"), "at most one agent, a simple_agent"),
        (("name: sums_simple_agent", "name: somebody"), "in front of its agent"),
        (("# Hands rows", "m: {responses_api_models: {m: {entrypoint: a}}}\n# Hands rows"), "defines a model server"),
    ],
)
def test_a_verifier_that_cannot_be_built_on_is_refused(project: Path, change: tuple[str, str], told: str) -> None:
    folder = scaffold_resources_server(Path("resources_servers/sums")).asset_dir
    config = folder / "configs/sums.yaml"
    assert change[0] in config.read_text()
    config.write_text(config.read_text().replace(*change))
    with pytest.raises(ScaffoldError, match=told):
        reusing("sums", name="words")
    assert not (project / "environments").exists()


def test_a_reused_verifier_must_show_what_it_does(project: Path) -> None:
    folder = scaffold_resources_server(Path("resources_servers/sums")).asset_dir
    (folder / "app.py").write_text("VERIFIER_FIXTURE = 1\n")
    scaffold_resources_server(Path("resources_servers/differences"))
    with pytest.raises(ScaffoldError, match=r"has no VERIFIER_FIXTURE.* differences") as refused:
        reusing("sums", name="words")
    assert "sums," not in str(refused.value)
    (folder / "app.py").write_text("VERIFIER_FIXTURE = server_fixture(Server, Request, 'cases.jsonl')\n")
    reusing("sums", name="more_words")
    (folder / "app.py").write_text("from resources_servers.other.app import VERIFIER_FIXTURE\n")
    reusing("sums", name="words")


def test_rewards_are_told_of_a_reused_verifier_and_of_no_other(project: Path) -> None:
    scaffold_resources_server(Path("resources_servers/sums"))
    with pytest.raises(ScaffoldError, match="must be told"):
        scaffold_environment(kind="environment", name="words", reuse_verifier="sums", reward_range=(0, 1))
    with pytest.raises(ScaffoldError, match="told of a reused one"):
        scaffold_environment(kind="environment", name="words", higher_is_better=True)
    with pytest.raises(ScaffoldError, match=r"no resources_servers/gone/configs/gone\.yaml"):
        reusing("gone", name="words")


def run(*command: str, folder: Path, project: Path) -> subprocess.CompletedProcess[str]:
    places = os.pathsep.join([str(project), str(PARENT_DIR)])
    environment = {**os.environ, "PYTHONPATH": places, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_tests_of_a_scaffold_pass(project: Path) -> None:
    folder = scaffold_resources_server(Path("resources_servers/sums")).asset_dir
    options = ("-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto")
    done = run(sys.executable, "-m", "pytest", *options, folder=folder, project=project)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr
    app = folder / "app.py"
    app.write_text(app.read_text().replace("is_right else 0.0", "is_right else 0.5"))
    assert run(sys.executable, "-m", "pytest", *options, folder=folder, project=project).returncode == 1


def test_a_scaffolded_verifier_does_what_its_cases_say(project: Path) -> None:
    folder = scaffold_resources_server(Path("resources_servers/sums")).asset_dir
    spec = VerifierSpec(
        root=project,
        server_dir=folder,
        entrypoint="app.py",
        reward_range=(0.0, 1.0),
        higher_is_better=True,
        determinism="unknown",
    )
    report = run_in(Path(sys.executable), RunnerRequest(spec=spec))
    assert [case.observed_rewards for case in report.cases] == [[1.0], [0.0], []]
    assert report.fixture_path == str(folder / "tests/verifier_cases.jsonl")


@pytest.mark.parametrize("profile", PROFILES[1:3])
def test_a_scaffolded_agent_can_be_imported_and_keeps_its_routes(project: Path, profile: str) -> None:
    scaffold_environment(kind="environment", name="words", profile=profile)
    code = (
        "import inspect\n"
        "from responses_api_agents.words_agent.app import WordsAgent\n"
        "from responses_api_agents.simple_agent.app import SimpleAgent\n"
        "def taken(method):\n"
        "    return [(each.name, each.annotation) for each in inspect.signature(method).parameters.values()]\n"
        "for name in ('responses', 'run'):\n"
        "    assert taken(getattr(WordsAgent, name)) == taken(getattr(SimpleAgent, name)), name\n"
    )
    done = run(sys.executable, "-c", code, folder=project, project=project)
    assert done.returncode == 0, done.stderr


def test_a_scaffolds_rows_fit_its_schema(project: Path) -> None:
    for kind, name in (("environment", "words"), ("benchmark", "sums")):
        rows = scaffold_environment(kind=kind, name=name).asset_dir / "data/example.jsonl"
        schema = load_task_data_schema(project / "resources_servers" / name)
        assert schema is not None
        report = validate_jsonl_rows(name, schema, str(rows), rows.read_text().splitlines())
        assert report.rows == 5 and report.clean, report.summary()


def test_a_scaffold_passes_its_audit(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME, str(project))
    scaffold_resources_server(Path("resources_servers/zq_sums"))
    report = audit("zq_sums")
    assert report.passed and "right answer" in {each.check for each in report.findings}, report


def test_a_scaffolded_script_prepares_its_rows(project: Path) -> None:
    made = scaffold_environment(kind="benchmark", name="words").asset_dir
    rows = made / "data/example.jsonl"
    before = rows.read_text()
    rows.unlink()
    done = run(sys.executable, "prepare.py", folder=made, project=project)
    assert done.stdout.strip() == str(rows) and rows.read_text() == before
    (made / "data/source.jsonl").write_text('{"question": "a", "expected_answer": "b"}\n{"question": 1}\n')
    refused = run(sys.executable, "prepare.py", folder=made, project=project)
    assert refused.returncode == 1 and "ValueError: line 2" in refused.stderr


def test_the_manifest_shows_what_is_still_to_be_said(project: Path) -> None:
    made = scaffold_environment(kind="benchmark", name="words").asset_dir
    manifest = load_manifest(made / "manifest.yaml")
    assert manifest.description.startswith("TODO") and manifest.authors == ["TODO"]
    assert (manifest.licensing, manifest.canonical_split, manifest.version) == ("unknown", "TODO", "0.1.0")


def test_one_file_in_the_way_is_enough(project: Path, write: Write) -> None:
    write("resources_servers/sums/app.py", "mine\n")
    with pytest.raises(ScaffoldConflictError, match=r"app\.py exists and is different"):
        scaffold_resources_server(Path("resources_servers/sums"))
    assert [path.name for path in (project / "resources_servers/sums").iterdir()] == ["app.py"]


def test_no_module_of_python_is_hidden(project: Path) -> None:
    with pytest.raises(ScaffoldError, match=r"'json' is a module of Python itself"):
        scaffold_resources_server(Path("resources_servers/json"))


def test_a_component_that_would_be_hidden_is_told(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scaffold_resources_server(Path("resources_servers/mcqa"))
    assert f"Warning: resources_servers/mcqa in {project} will hide the one in " in capsys.readouterr().err
    scaffold_resources_server(Path("resources_servers/mcqa"))
    scaffold_resources_server(Path("resources_servers/sums"))
    assert capsys.readouterr().err == ""


SECOND_AGENT = """
second_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: sums_resources_server}
      model_server: {type: responses_api_models, name: policy_model}
"""


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (SECOND_AGENT, "at most one agent, a simple_agent"),
        ("environment_server_routes: {sums_simple_agent: sums_environment_server}\n", "rows are routed to"),
    ],
)
def test_a_config_that_runs_more_than_its_verifier_is_refused(project: Path, more: str, told: str) -> None:
    folder = scaffold_resources_server(Path("resources_servers/sums")).asset_dir
    with (folder / "configs/sums.yaml").open("a") as config:
        config.write(more)
    with pytest.raises(ScaffoldError, match=told):
        reusing("sums", name="words")
