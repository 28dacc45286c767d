"""The cases a verifier is exercised with: one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AllowInfNan, BaseModel, ConfigDict, Strict, ValidationError, model_validator

from nemo_gym.config.replacing import replacing

CaseKind = Literal["full_reward", "zero_reward", "malformed", "determinism"]


class VerifierFixtureError(ValueError):
    """A verifier, or its cases, don't do what they should."""


class VerifierCase(BaseModel):
    """A request to verify, and what must come of it: a reward, or for a malformed one an error that contains a text."""

    model_config = ConfigDict(extra="forbid")

    name: str
    kind: CaseKind
    request: dict[str, Any]
    expected_reward: Annotated[float, Strict(), AllowInfNan(False)] | None = None
    expected_error: str | None = None

    @model_validator(mode="after")
    def require_the_right_expectation(self) -> Self:
        if self.kind == "malformed":
            if not self.expected_error or self.expected_reward is not None:
                raise ValueError("a malformed case needs expected_error and has no expected_reward")
        elif self.expected_reward is None or self.expected_error is not None:
            raise ValueError(f"a {self.kind} case needs expected_reward and has no expected_error")
        return self


def read_cases(path: Path) -> list[VerifierCase]:
    """The cases of a file, blank lines skipped. VerifierFixtureError names the file and line that is wrong."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise VerifierFixtureError(f"{path}: the verifier's cases can't be read: {error.strerror}") from error
    cases = [_case(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not cases:
        raise VerifierFixtureError(f"{path}: there are no cases")
    return cases


def _case(path: Path, number: int, line: str) -> VerifierCase:
    try:
        return VerifierCase.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "case"
        raise VerifierFixtureError(f"{path}, line {number}: {place}: {first['msg']}") from error


def write_expected(path: Path, cases: Sequence[VerifierCase], rewards: dict[int, float]) -> None:
    """Put the observed rewards, by position, into the file, at once or not at all; blank lines stay.

    VerifierFixtureError for anything but a regular file.
    """
    if path.is_symlink() or not path.is_file():
        raise VerifierFixtureError(f"{path}: only a regular file is updated")
    position = -1
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip():
            position += 1
            fields = json.loads(line)
            if position in rewards:
                fields["expected_reward"] = rewards[position]
            line = json.dumps(fields, ensure_ascii=False)
        lines.append(line + "\n")
    assert position + 1 == len(cases)
    with replacing(path) as file:
        file.writelines(lines)
