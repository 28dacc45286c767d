from __future__ import annotations

import json
import stat
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from nemo_gym.verifier_fixture import (
    VerifierFixture,
    VerifierFixtureError,
    exercise_verifier_fixture,
    load_verifier_fixture,
)

FULL = {"name": "full", "kind": "full_reward", "request": {"value": 1}, "expected_reward": 1.0}
ZERO = {"name": "zero", "kind": "zero_reward", "request": {"value": 0}, "expected_reward": 0}
MALFORMED = {"name": "bad", "kind": "malformed", "request": {}, "expected_error": "value"}
SAME = {"name": "same", "kind": "determinism", "request": {"value": 0.5}, "expected_reward": 0.5}
CASES: list[dict[str, Any]] = [FULL, ZERO, MALFORMED, SAME]


class Request(BaseModel):
    value: Any


class Verdict(BaseModel):
    reward: Any


class Server:
    made = 0

    def __init__(self) -> None:
        type(self).made += 1
        self.noise = 0.0

    async def verify(self, request: Request) -> Verdict:
        if request.value == "raise":
            raise TypeError("as asked")
        return Verdict(reward=request.value + self.noise if self.noise else request.value)


def write(path: Path, *cases: dict[str, Any]) -> Path:
    path.write_text("\n\n".join(map(json.dumps, cases)) + "\n")
    return path


def fixture(path: Path, **fields: Any) -> VerifierFixture:
    return VerifierFixture(**{"server_factory": Server, "request_model": Request, "cases_path": path, **fields})


async def exercise(path: Path, fields: dict[str, Any] | None = None, **options: Any) -> Any:
    settings = {"reward_range": (0.0, 1.0), "determinism": "seeded", **options}
    return await exercise_verifier_fixture(fixture(path, **(fields or {})), **settings)


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    return write(tmp_path / "cases.jsonl", *CASES)


async def test_every_case_is_run_on_a_server_of_its_own(cases: Path) -> None:
    Server.made = 0
    results = await exercise(cases)
    assert [(r.name, r.kind, r.observed_rewards) for r in results] == [
        ("full", "full_reward", (1.0,)),
        ("zero", "zero_reward", (0.0,)),
        ("bad", "malformed", ()),
        ("same", "determinism", (0.5, 0.5)),
    ]
    assert Server.made == 5


class Determinism(Enum):
    STOCHASTIC = "stochastic"


@pytest.mark.parametrize("determinism", ["unknown", Determinism.STOCHASTIC])
async def test_determinism_is_looked_at_only_where_it_is_claimed(tmp_path: Path, determinism: Any) -> None:
    path = write(tmp_path / "c.jsonl", FULL, ZERO, MALFORMED, {**SAME, "expected_reward": 0.25})
    assert [r.kind for r in await exercise(path, determinism=determinism)] == [
        "full_reward",
        "zero_reward",
        "malformed",
    ]


async def test_it_is_reseeded_before_each_run_of_a_determinism_case(cases: Path) -> None:
    seen: list[float] = []

    def reseed(server: Server, request: Request) -> None:
        seen.append(request.value)

    await exercise(cases, {"reseed": reseed})
    assert seen == [0.5, 0.5]


async def test_runs_that_differ_are_told(cases: Path) -> None:
    noise = iter([0.0, 0.1])

    async def reseed(server: Server, request: Request) -> None:
        server.noise = next(noise)

    with pytest.raises(VerifierFixtureError, match=r"case 'same'.*\(0\.5, 0\.6\)"):
        await exercise(cases, {"reseed": reseed})


INVOCATIONS: list[Callable[[Any, Any], object]] = [
    lambda server, request: server.verify(request),
    lambda server, request: Verdict(reward=request.value),
    lambda server, request: {"reward": request.value},
    lambda server, request: request.value,
]


@pytest.mark.parametrize("invoke", INVOCATIONS)
async def test_a_verdict_may_have_any_form(cases: Path, invoke: Callable[[Any, Any], object]) -> None:
    assert len(await exercise(cases, {"invoke": invoke})) == 4


async def test_the_lower_end_is_the_best_where_less_is_more(tmp_path: Path) -> None:
    swapped = [{**FULL, "request": {"value": 0}, "expected_reward": 0.0}, {**ZERO, "request": {"value": 1}}]
    swapped[1]["expected_reward"] = 1.0
    path = write(tmp_path / "c.jsonl", *swapped, MALFORMED)
    assert len(await exercise(path, determinism="unknown", higher_is_better=False)) == 3
    with pytest.raises(VerifierFixtureError, match=r"full_reward case must get 1\.0"):
        await exercise(path, determinism="unknown")


WRONG: list[tuple[list[dict[str, Any]], str]] = [
    ([FULL, ZERO, MALFORMED], "no case of the kind determinism"),
    ([FULL, SAME], "no case of the kind zero_reward, malformed"),
    ([], "no cases"),
    ([{**FULL, "request": {"value": 0.5}}, *CASES[1:]], "'full': the reward is 0.5: a full_reward case must get 1.0"),
    ([*CASES[:3], {**SAME, "expected_reward": 0.25}], "'same': the reward is 0.5, expected was 0.25"),
    ([*CASES[:3], {**SAME, "request": {"value": 1.5}}], "outside of 0.0 to 1.0"),
    ([*CASES[:3], {**SAME, "request": {"value": True}}], "no reward"),
    ([*CASES[:3], {**SAME, "request": {"value": None}}], "None is no reward"),
    ([*CASES[:3], {**SAME, "request": {"value": "raise"}}], "the verifier raised TypeError: as asked"),
    ([FULL, ZERO, {**MALFORMED, "request": {"value": 1}}, SAME], "'bad': a malformed request must be refused"),
    ([FULL, ZERO, {**MALFORMED, "expected_error": "city"}, SAME], "'city' is not in the error"),
    ([{**FULL, "unheard": 1}], "line 1: unheard"),
    ([FULL, {**MALFORMED, "expected_reward": 1.0}], "line 3: case"),
    ([{**FULL, "expected_error": "x"}], "line 1: case"),
    ([{**FULL, "expected_reward": "1"}], "line 1: expected_reward"),
    ([{**FULL, "expected_reward": float("nan")}], "line 1"),
    ([{**FULL, "kind": "odd"}], "line 1: kind"),
]


@pytest.mark.parametrize(("lines", "told"), WRONG)
async def test_what_is_wrong_is_told(tmp_path: Path, lines: list[dict[str, Any]], told: str) -> None:
    with pytest.raises(VerifierFixtureError) as caught:
        await exercise(write(tmp_path / "c.jsonl", *lines))
    assert told in str(caught.value)


@pytest.mark.parametrize("bounds", [(1.0, 0.0), (0.0,), (0.0, float("inf"))])
async def test_a_range_that_is_none_is_refused(cases: Path, bounds: tuple[float, ...]) -> None:
    with pytest.raises(VerifierFixtureError, match="reward range"):
        await exercise(cases, reward_range=bounds)
    with pytest.raises(VerifierFixtureError, match="seeded, stochastic, unknown"):
        await exercise(cases, determinism="maybe")


async def test_missing_cases_are_told(tmp_path: Path) -> None:
    with pytest.raises(VerifierFixtureError, match="can't be read"):
        await exercise(tmp_path / "none.jsonl")


# --- updating ---------------------------------------------------------------------------------------------------------


async def test_expected_rewards_are_rewritten_once_all_cases_passed(tmp_path: Path) -> None:
    path = write(tmp_path / "c.jsonl", FULL, ZERO, MALFORMED, {**SAME, "expected_reward": 0.25})
    path.chmod(0o640)
    before = path.read_text()
    broken = write(
        tmp_path / "b.jsonl", {**SAME, "expected_reward": 0.25}, ZERO, MALFORMED, {**FULL, "request": {"value": 2}}
    )
    with pytest.raises(VerifierFixtureError):
        await exercise(broken, update_expected=True)
    assert '"expected_reward": 0.25' in broken.read_text()
    await exercise(path, update_expected=True)
    assert path.read_text() == before.replace("0.25", "0.5").replace('"expected_reward": 0}', '"expected_reward": 0.0}')
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b.jsonl", "c.jsonl"]


async def test_a_link_is_not_written_through(cases: Path) -> None:
    link = cases.with_name("link.jsonl")
    link.symlink_to(cases)
    with pytest.raises(VerifierFixtureError, match="regular file"):
        await exercise(link, update_expected=True)


# --- loading ----------------------------------------------------------------------------------------------------------


def test_a_fixture_is_taken_from_a_component_s_file(tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("PATH = 'cases.jsonl'\n")
    (tmp_path / "app.py").write_text(
        "from pydantic import BaseModel\nfrom neighbour import PATH\n"
        "from nemo_gym.verifier_fixture import VerifierFixture\n"
        "VERIFIER_FIXTURE = VerifierFixture(server_factory=object, request_model=BaseModel, cases_path=PATH)\n"
    )
    assert load_verifier_fixture(tmp_path / "app.py").cases_path == "cases.jsonl"
    (tmp_path / "app.py").write_text("VERIFIER_FIXTURE = 1\n")
    for path in (tmp_path / "app.py", tmp_path / "none.py"):
        with pytest.raises(VerifierFixtureError, match="VERIFIER_FIXTURE"):
            load_verifier_fixture(path)
