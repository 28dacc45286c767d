"""A verifier with cases that show what it does: `VERIFIER_FIXTURE` in a component's `app.py`."""

import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from nemo_gym.testing.verifier_cases import VerifierFixtureError
from nemo_gym.testing.verifier_exercise import Expectations, Verifier, exercise
from nemo_gym.testing.verifier_exercise import Observation as VerifierFixtureResult

__all__ = [
    "VerifierFixture",
    "VerifierFixtureError",
    "VerifierFixtureResult",
    "exercise_verifier_fixture",
    "load_verifier_fixture",
    "server_fixture",
]

_FixtureInvocation = Callable[[Any, Any], object]


@dataclass(frozen=True)
class VerifierFixture:
    """What is needed to exercise a verifier: something with `verify`, its requests, and a JSONL file of cases.

    `invoke(server, request)` replaces `server.verify(request)`; `reseed(server, request)` comes before each run of a
    determinism case. Both may be coroutines.
    """

    server_factory: Callable[[], object]
    request_model: type[BaseModel]
    cases_path: str | Path
    invoke: _FixtureInvocation | None = None
    reseed: _FixtureInvocation | None = None


def server_fixture(
    kind: type[BaseModel],
    request_model: type[BaseModel],
    cases_path: str | Path,
    *,
    invoke: _FixtureInvocation | None = None,
    **settings: Any,
) -> VerifierFixture:
    """A fixture whose server is a resources server of class `kind`, with these `settings` and no others to call."""

    def server() -> object:
        from nemo_gym.testing.verdicts import new_server

        return new_server(kind, **settings)

    return VerifierFixture(server, request_model, cases_path, invoke)


async def exercise_verifier_fixture(
    fixture: VerifierFixture,
    *,
    reward_range: Sequence[float],
    higher_is_better: bool = True,
    determinism: str | Enum,
    update_expected: bool = False,
) -> tuple[VerifierFixtureResult, ...]:
    """Run every case on a server of its own; the rewards that were seen.

    There must be a full_reward, a zero_reward and a malformed case, and with `determinism` "seeded" one of that kind
    (else those are skipped). Full and zero rewards are the ends of `reward_range`. With `update_expected` the file
    gets the rewards that were seen. Raises VerifierFixtureError for the first case that is wrong.
    """
    expected = Expectations.of(reward_range, higher_is_better, determinism, exact=not update_expected)
    verifier = Verifier(fixture.server_factory, fixture.request_model, fixture.invoke, fixture.reseed)
    return tuple(await exercise(verifier, Path(fixture.cases_path), expected))


def load_verifier_fixture(path: str | Path) -> VerifierFixture:
    """The `VERIFIER_FIXTURE` of an `app.py`; VerifierFixtureError when it has none."""
    path = Path(path).resolve()
    spec = importlib.util.spec_from_file_location(f"_verifier_fixture_{path.parent.name}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise VerifierFixtureError(f"{path}: there is no Python file to take VERIFIER_FIXTURE from")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
        del sys.modules[spec.name]
    fixture = getattr(module, "VERIFIER_FIXTURE", None)
    if not isinstance(fixture, VerifierFixture):
        raise VerifierFixtureError(f"{path}: it has no VERIFIER_FIXTURE that is a VerifierFixture")
    return fixture
