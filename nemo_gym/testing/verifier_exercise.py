"""Running a verifier over its cases."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from nemo_gym.testing.verifier_cases import (
    CaseKind,
    VerifierCase,
    VerifierFixtureError,
    read_cases,
    write_expected,
)

_DETERMINISM = ("seeded", "stochastic", "unknown")


@dataclass(frozen=True)
class Verifier:
    """How a request becomes a reward; a new server for each observation."""

    server_factory: Callable[[], object]
    request_model: type[BaseModel]
    invoke: Callable[[Any, Any], object] | None
    reseed: Callable[[Any, Any], object] | None

    async def reward(self, case: VerifierCase, *, reseeded: bool = False) -> float:
        """The reward of a case. What the verifier raises comes through; VerifierFixtureError for what is no reward."""
        server = self.server_factory()
        request = self.request_model.model_validate(case.request)
        if reseeded and self.reseed is not None:
            await _awaited(self.reseed(server, request))
        verify = self.invoke or (lambda server, request: server.verify(request))
        return _reward_of(case, await _awaited(verify(server, request)))


@dataclass(frozen=True)
class Observation:
    """The rewards that were seen for a case: none, one, or one a run."""

    name: str
    kind: CaseKind
    observed_rewards: tuple[float, ...]


@dataclass(frozen=True)
class Expectations:
    """What the rewards of an environment are like."""

    low: float
    high: float
    higher_is_better: bool
    is_seeded: bool
    exact: bool

    @classmethod
    def of(
        cls, reward_range: Sequence[float], higher_is_better: bool, determinism: str | Enum, exact: bool
    ) -> Expectations:
        """VerifierFixtureError for a range that is none and for an unknown word on determinism."""
        word = str(determinism.value if isinstance(determinism, Enum) else determinism)
        if word not in _DETERMINISM:
            raise VerifierFixtureError(f"determinism is {word!r}: it must be one of {', '.join(_DETERMINISM)}")
        bounds = list(reward_range)
        if len(bounds) != 2 or not all(map(math.isfinite, bounds)) or bounds[0] >= bounds[1]:
            raise VerifierFixtureError(f"the reward range is {bounds}: it must be two finite numbers, the lower first")
        return cls(bounds[0], bounds[1], higher_is_better, word == "seeded", exact)

    def check(self, case: VerifierCase, reward: float) -> None:
        """Raises VerifierFixtureError for a reward that isn't the case's."""
        if not self.low <= reward <= self.high:
            raise _wrong(case, f"the reward is {reward}, outside of {self.low} to {self.high}")
        best, worst = (self.high, self.low) if self.higher_is_better else (self.low, self.high)
        endpoint = {"full_reward": best, "zero_reward": worst}.get(case.kind)
        if endpoint is not None and reward != endpoint:
            raise _wrong(case, f"the reward is {reward}: a {case.kind} case must get {endpoint}")
        if self.exact and reward != case.expected_reward:
            raise _wrong(case, f"the reward is {reward}, expected was {case.expected_reward}")


async def exercise(verifier: Verifier, path: Path, expected: Expectations) -> list[Observation]:
    """What was observed for each case. VerifierFixtureError for the first that is wrong.

    Unless `expected.exact`, the file gets the rewards that were observed, once all cases passed.
    """
    cases = read_cases(path)
    _require_kinds(path, cases, expected.is_seeded)
    observations, rewards = [], {}
    for position, case in enumerate(cases):
        if case.kind == "determinism" and not expected.is_seeded:
            continue
        observed = await _observe(verifier, case, expected)
        observations.append(Observation(case.name, case.kind, observed))
        if observed:
            rewards[position] = observed[0]
    if not expected.exact:
        write_expected(path, cases, rewards)
    return observations


def _require_kinds(path: Path, cases: Sequence[VerifierCase], is_seeded: bool) -> None:
    needed: tuple[CaseKind, ...] = ("full_reward", "zero_reward", "malformed")
    needed += ("determinism",) if is_seeded else ()
    missing = [kind for kind in needed if all(case.kind != kind for case in cases)]
    if missing:
        raise VerifierFixtureError(f"{path}: there is no case of the kind {', '.join(missing)}")


async def _observe(verifier: Verifier, case: VerifierCase, expected: Expectations) -> tuple[float, ...]:
    if case.kind == "malformed":
        await _expect_error(verifier, case)
        return ()
    runs = 2 if case.kind == "determinism" else 1
    try:
        rewards = tuple([await verifier.reward(case, reseeded=runs > 1) for _ in range(runs)])
    except VerifierFixtureError:
        raise
    except Exception as error:
        raise _wrong(case, f"the verifier raised {type(error).__name__}: {error}") from error
    if len(set(rewards)) > 1:
        raise _wrong(case, f"the rewards differ between runs with the same seed: {rewards}")
    expected.check(case, rewards[0])
    return rewards


async def _expect_error(verifier: Verifier, case: VerifierCase) -> None:
    try:
        reward = await verifier.reward(case)
    except VerifierFixtureError:
        raise
    except Exception as error:
        if case.expected_error not in str(error):  # type: ignore[operator]
            raise _wrong(case, f"{case.expected_error!r} is not in the error: {error}") from error
        return
    raise _wrong(case, f"a malformed request must be refused, and got the reward {reward}")


async def _awaited(value: object) -> object:
    return await value if inspect.isawaitable(value) else value


def _reward_of(case: VerifierCase, result: Any) -> float:
    reward = result.get("reward") if isinstance(result, Mapping) else getattr(result, "reward", result)
    if isinstance(reward, bool) or not isinstance(reward, int | float) or not math.isfinite(reward):
        raise _wrong(case, f"{reward!r} is no reward: it must be a finite number")
    return float(reward)


def _wrong(case: VerifierCase, what: str) -> VerifierFixtureError:
    return VerifierFixtureError(f"case {case.name!r}: {what}")
