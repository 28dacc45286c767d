"""Exercising a verifier in another process, and the gate before others see an environment."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nemo_gym.environment import verifier_run
from nemo_gym.environment._verifier_runner import imported_app
from nemo_gym.environment._verifier_runner import run as run_here
from nemo_gym.environment.errors import EnvironmentOnboardingError, EnvironmentPublicationError
from nemo_gym.environment.publication import publish
from nemo_gym.environment.scaffold import scaffold_environment
from nemo_gym.environment.validation import validated
from nemo_gym.environment.verifier_run import RunnerRequest, VerifierSpec, exercise_environment, run_in
from tests.unit.environment.conftest import Write

APP = """
from pydantic import BaseModel
from nemo_gym.verifier_fixture import VerifierFixture
import beside

class Request(BaseModel):
    answer: int

class Verifier:
    def verify(self, body):
        print("noise on stdout")
        return {{"reward": beside.REWARD if body.answer == 42 else 0.0}}

VERIFIER_FIXTURE = VerifierFixture(Verifier, Request, {cases!r})
"""
CASES = [
    {"name": "right", "kind": "full_reward", "request": {"answer": 42}, "expected_reward": 1.0},
    {"name": "wrong", "kind": "zero_reward", "request": {"answer": 41}, "expected_reward": 0.0},
    {"name": "none", "kind": "malformed", "request": {}, "expected_error": "answer"},
]


@pytest.fixture
def spec(write: Write, project: Path) -> VerifierSpec:
    """A verifier in the current project, with a module beside its app."""
    cases = write("resources_servers/quiz/cases.jsonl", "".join(json.dumps(case) + "\n" for case in CASES))
    write("resources_servers/quiz/app.py", APP.format(cases=str(cases)))
    write("resources_servers/quiz/beside.py", "REWARD = 1.0\n")
    return VerifierSpec(
        root=project,
        server_dir=project / "resources_servers/quiz",
        entrypoint="app.py",
        reward_range=(0.0, 1.0),
        higher_is_better=True,
        determinism="unknown",
    )


def test_a_verifier_is_exercised_and_its_noise_kept_from_stdout(
    spec: VerifierSpec, capfd: pytest.CaptureFixture[str]
) -> None:
    report = run_in(Path(sys.executable), RunnerRequest(spec=spec))
    assert [(case.name, case.observed_rewards) for case in report.cases] == [
        ("right", [1.0]),
        ("wrong", [0.0]),
        ("none", []),
    ]
    captured = capfd.readouterr()
    assert captured.out == "" and "noise on stdout" in captured.err


@pytest.mark.parametrize(
    ("beside", "told"),
    [
        ("REWARD = 0.5\n", "a full_reward case must get 1.0"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
        ("import os; os._exit(0)\n", "no result"),
        ("REWARD = 1.0\nimport atexit, os\natexit.register(os._exit, 7)\n", "ended with 7"),
        ("import gone_module\n", "gone_module"),
    ],
)
def test_a_verifier_that_does_otherwise_is_told(spec: VerifierSpec, write: Write, beside: str, told: str) -> None:
    write("resources_servers/quiz/beside.py", beside)
    with pytest.raises(EnvironmentOnboardingError, match=told):
        run_in(Path(sys.executable), RunnerRequest(spec=spec))


def test_an_app_without_a_fixture_is_told(spec: VerifierSpec, write: Write) -> None:
    write("resources_servers/quiz/app.py", "VERIFIER_FIXTURE = 1\n")
    result = run_here(RunnerRequest(spec=spec))
    assert not result.ok and "no VERIFIER_FIXTURE" in (result.error or "")


def test_expected_rewards_are_written_when_asked(spec: VerifierSpec) -> None:
    cases = spec.server_dir / "cases.jsonl"
    cases.write_text(cases.read_text().replace('"expected_reward": 1.0', '"expected_reward": 0.7'))
    with pytest.raises(EnvironmentOnboardingError, match=r"expected was 0\.7"):
        run_in(Path(sys.executable), RunnerRequest(spec=spec))
    run_in(Path(sys.executable), RunnerRequest(spec=spec, update_expected=True))
    assert json.loads(cases.read_text().splitlines()[0])["expected_reward"] == 1.0


def test_importing_an_app_leaves_no_trace(spec: VerifierSpec) -> None:
    places, modules = list(sys.path), set(sys.modules)
    with imported_app(spec) as app:
        assert app.__name__ == "resources_servers.quiz.app" and sys.modules[app.__name__] is app
        assert sys.path[:2] == [str(spec.server_dir), str(spec.root)]
    assert sys.path == places and not {"beside", "resources_servers.quiz.app"} & (set(sys.modules) - modules)


@pytest.fixture
def words(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The manifest of a scaffold whose venv is this one."""
    made = scaffold_environment(kind="environment", name="words").asset_dir

    class Venv:
        python = Path(sys.executable)

    monkeypatch.setattr(verifier_run, "ensure_venv", lambda *args, **options: Venv)
    return made / "manifest.yaml"


def filled_in(manifest: Path) -> None:
    text = manifest.read_text()
    for old, new in {"- TODO": "- Somebody", "TODO: ": "", "licensing: unknown": "licensing: MIT"}.items():
        assert old in text
        text = text.replace(old, new)
    manifest.write_text(text)


def test_an_environments_verifier_is_that_of_its_resources_server(words: Path) -> None:
    shown = exercise_environment(validated(words))
    assert (shown.name, shown.kind, shown.resources_server) == ("words", "environment", "words")
    assert [case["name"] for case in shown.as_json()["cases"]] == ["right answer", "wrong answer", "no response"]


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (lambda folder: (folder / "pyproject.toml").touch(), "both requirements.txt and pyproject.toml"),
        (lambda folder: (folder / "app.py").unlink(), "no .*app.py to take VERIFIER_FIXTURE from"),
        (
            lambda folder: (folder / "configs/words.yaml").write_text(
                (folder / "configs/words.yaml").read_text().replace("app.py", "../app.py")
            ),
            "leads out of",
        ),
    ],
)
def test_a_server_that_cannot_be_entered_is_told(words: Path, broken, told: str) -> None:  # type: ignore[no-untyped-def]
    broken(words.parents[2] / "resources_servers/words")
    with pytest.raises(EnvironmentOnboardingError, match=told):
        exercise_environment(validated(words))


def test_what_is_ready_is_told(words: Path) -> None:
    filled_in(words)
    ready = publish(words)
    assert ready.as_json() == {
        "name": "words",
        "version": "0.1.0",
        "kind": "environment",
        "status": "experimental",
        "manifest_path": str(words),
        "verifier_cases": 3,
    }
    words.write_text(words.read_text().replace("experimental: true", "experimental: false"))
    assert "status" not in publish(words).as_json()


def test_placeholders_are_not_published(words: Path) -> None:
    with pytest.raises(EnvironmentPublicationError, match="still has to say: description, authors, licensing"):
        publish(words)


def test_another_of_the_name_that_comes_first_is_told(
    words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled_in(words)
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(tmp_path / "better"))
    copied = tmp_path / "better/environments/words"
    copied.mkdir(parents=True)
    for name in ("manifest.yaml", "config.yaml"):
        (copied / name).write_text((words.parent / name).read_text())
    with pytest.raises(EnvironmentPublicationError, match="The catalog's `words` is "):
        publish(words)


def test_a_wrong_verifier_is_not_published(words: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled_in(words)
    app = words.parents[2] / "resources_servers/words/app.py"
    app.write_text(app.read_text().replace("1.0 if is_right", "0.9 if is_right"))
    with pytest.raises(EnvironmentOnboardingError, match="full_reward"):
        publish(words)


def test_the_runner_ends_with_1_when_a_case_fails(spec: VerifierSpec, write: Write, tmp_path: Path) -> None:
    write("resources_servers/quiz/beside.py", "REWARD = 0.5\n")
    asked, answered = tmp_path / "request.json", tmp_path / "result.json"
    asked.write_text(RunnerRequest(spec=spec).model_dump_json())
    command = [sys.executable, "-m", verifier_run.RUNNER, "--request", str(asked), "--result", str(answered)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 1
    assert json.loads(answered.read_text())["ok"] is False
