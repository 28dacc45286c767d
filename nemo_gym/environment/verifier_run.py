"""Exercising an environment's verifier in the venv of its resources server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from nemo_gym.config.keys import RESOURCES_SERVERS
from nemo_gym.config.roots import PARENT_DIR, is_server_directory, server_directory
from nemo_gym.environment.composition import searched_first
from nemo_gym.environment.errors import EnvironmentOnboardingError
from nemo_gym.environment.validation import ValidatedEnvironment, environment_root
from nemo_gym.launch.venvs import VenvSettings, ensure_venv

RUNNER = "nemo_gym.environment._verifier_runner"


class VerifierSpec(BaseModel):
    """What the process in the server's venv is told."""

    model_config = ConfigDict(extra="forbid")

    root: Path
    server_dir: Path
    entrypoint: str
    reward_range: tuple[float, float]
    higher_is_better: bool
    determinism: str


class RunnerRequest(BaseModel):
    """The request file."""

    spec: VerifierSpec
    update_expected: bool = False


class ObservedCase(BaseModel):
    """The rewards that were seen for a case."""

    name: str
    kind: str
    observed_rewards: list[float]


class VerifierReport(BaseModel):
    """What the exercise showed."""

    fixture_path: str
    cases: list[ObservedCase]


class RunnerResult(BaseModel):
    """The result file."""

    ok: bool
    report: VerifierReport | None = None
    error: str | None = None


@dataclass(frozen=True)
class VerifierTest:
    """A verifier that does what its cases say."""

    name: str
    kind: str
    resources_server: str
    manifest_path: str
    fixture_path: str
    cases: list[ObservedCase]

    def as_json(self) -> dict[str, Any]:
        return {**self.__dict__, "cases": [case.model_dump() for case in self.cases]}


def exercise_environment(environment: ValidatedEnvironment, *, update_expected: bool = False) -> VerifierTest:
    """Run the verifier's cases. With `update_expected` their file gets the rewards that were seen.

    Raises EnvironmentOnboardingError when there is no fixture, or a case comes out otherwise.
    """
    server = environment.composition.resources_server
    manifest, path = environment.manifest, environment.report.manifest_path
    if server is None:
        raise EnvironmentOnboardingError(f"`{manifest.name}` has no resources server, so no verifier to exercise.")
    with searched_first(environment_root(Path(path))):
        directory = server_directory(RESOURCES_SERVERS, server.implementation)
    _check_server(directory, server.entrypoint)
    if update_expected and directory.is_relative_to(PARENT_DIR) and not (PARENT_DIR / "pyproject.toml").exists():
        raise EnvironmentOnboardingError(f"{directory} belongs to the installed package: its cases are not changed.")
    spec = VerifierSpec(
        root=directory.parents[1],
        server_dir=directory,
        entrypoint=server.entrypoint,
        reward_range=manifest.reward.range,
        higher_is_better=manifest.reward.higher_is_better,
        determinism=manifest.determinism.value,
    )
    settings = VenvSettings.from_config(cast(Mapping[str, Any], environment.composition.config))
    venv = ensure_venv(directory, settings, entrypoints=(server.entrypoint,), report=_to_stderr)
    report = run_in(venv.python, RunnerRequest(spec=spec, update_expected=update_expected))
    return VerifierTest(
        manifest.name, manifest.kind.value, server.implementation, path, report.fixture_path, report.cases
    )


def run_in(python: Path, request: RunnerRequest) -> VerifierReport:
    """Exercise a verifier by an interpreter; what it prints goes to stderr. Raises EnvironmentOnboardingError."""
    with tempfile.TemporaryDirectory(prefix="nemo-gym-verifier-") as folder:
        asked, answered = Path(folder, "request.json"), Path(folder, "result.json")
        asked.write_text(request.model_dump_json(), encoding="utf-8")
        command = [str(python), "-m", RUNNER, "--request", str(asked), "--result", str(answered)]
        python_path = os.pathsep.join(filter(None, [str(PARENT_DIR), os.environ.get("PYTHONPATH")]))
        code = subprocess.call(
            command, cwd=request.spec.server_dir, stdout=sys.stderr, env={**os.environ, "PYTHONPATH": python_path}
        )
        return _report(answered, code, request.spec.server_dir)


def _report(answered: Path, code: int, directory: Path) -> VerifierReport:
    try:
        result = RunnerResult.model_validate(json.loads(answered.read_text(encoding="utf-8")))
    except OSError as error:
        raise EnvironmentOnboardingError(f"The verifier of {directory} ended with {code} and no result.") from error
    except (ValueError, ValidationError) as error:
        raise EnvironmentOnboardingError(f"The verifier of {directory} wrote a result nobody can read.") from error
    if not result.ok or code or result.report is None:
        raise EnvironmentOnboardingError(result.error or f"The verifier of {directory} ended with {code}.")
    return result.report


def _check_server(directory: Path, entrypoint: str) -> None:
    if (directory / "requirements.txt").is_file() and (directory / "pyproject.toml").is_file():
        raise EnvironmentOnboardingError(f"{directory} has both requirements.txt and pyproject.toml: keep one.")
    assert is_server_directory(directory)
    file = directory / entrypoint
    if Path(entrypoint).is_absolute() or not file.resolve().is_relative_to(directory.resolve()):
        raise EnvironmentOnboardingError(f"The entrypoint {entrypoint} leads out of {directory}.")
    if not file.is_file():
        raise EnvironmentOnboardingError(f"There is no {file} to take VERIFIER_FIXTURE from.")


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr)
