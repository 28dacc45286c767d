"""`python -m nemo_gym.environment._verifier_runner`: exercise one verifier here, in its server's venv."""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from nemo_gym.environment.verifier_run import ObservedCase, RunnerRequest, RunnerResult, VerifierReport, VerifierSpec
from nemo_gym.verifier_fixture import VerifierFixture, VerifierFixtureError, exercise_verifier_fixture


def main() -> None:
    parser = argparse.ArgumentParser(description="Exercise a verifier.")
    parser.add_argument("--request", type=Path, required=True)
    parser.add_argument("--result", type=Path, required=True)
    options = parser.parse_args()
    result = run(RunnerRequest.model_validate_json(options.request.read_text(encoding="utf-8")))
    options.result.write_text(result.model_dump_json(), encoding="utf-8")
    raise SystemExit(0 if result.ok else 1)


def run(request: RunnerRequest) -> RunnerResult:
    """What the verifier shows, or why it can't be exercised."""
    try:
        with imported_app(request.spec) as app:
            fixture = getattr(app, "VERIFIER_FIXTURE", None)
            if not isinstance(fixture, VerifierFixture):
                raise VerifierFixtureError(f"{app.__file__} has no VERIFIER_FIXTURE that is a VerifierFixture")
            cases = asyncio.run(_exercise(fixture, request))
    except (Exception, SystemExit) as error:
        return RunnerResult(ok=False, error=_told(error))
    return RunnerResult(ok=True, report=VerifierReport(fixture_path=str(fixture.cases_path), cases=cases))


async def _exercise(fixture: VerifierFixture, request: RunnerRequest) -> list[ObservedCase]:
    observed = await exercise_verifier_fixture(
        fixture,
        reward_range=request.spec.reward_range,
        higher_is_better=request.spec.higher_is_better,
        determinism=request.spec.determinism,
        update_expected=request.update_expected,
    )
    return [
        ObservedCase(name=each.name, kind=each.kind, observed_rewards=list(each.observed_rewards)) for each in observed
    ]


@contextmanager
def imported_app(spec: VerifierSpec) -> Iterator[ModuleType]:
    """A server's app under its dotted name, with its folder and root first on `sys.path`; afterwards all is as before.

    Raises VerifierFixtureError for what is no Python file.
    """
    path = spec.server_dir / spec.entrypoint
    name = ".".join(path.relative_to(spec.root).with_suffix("").parts)
    modules, places = dict(sys.modules), list(sys.path)
    sys.path[:0] = [str(spec.server_dir), str(spec.root)]
    try:
        found = importlib.util.spec_from_file_location(name, path)
        if found is None or found.loader is None:
            raise VerifierFixtureError(f"{path} is no Python file")
        module = importlib.util.module_from_spec(found)
        sys.modules[name] = module
        found.loader.exec_module(module)
        yield module
    finally:
        sys.path[:] = places
        for added in set(sys.modules) - set(modules):
            del sys.modules[added]
        sys.modules.update(modules)


def _told(error: BaseException) -> str:
    return str(error) if isinstance(error, VerifierFixtureError) else f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main()
