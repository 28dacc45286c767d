"""Evaluating the records of a file, one line at a time."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError

from nemo_gym.health.checks import CannotTell
from nemo_gym.health.models import CallStatistics, CheckInput, CheckSpec, Finding, RolloutDigest, TaskIndex
from nemo_gym.health.registry import CHECK_REGISTRY, EXECUTION_ERROR, UNREADABLE
from nemo_gym.health.view import RolloutView, is_failed, is_successful
from nemo_gym.results.records import ROLLOUT_INDEX, TASK_INDEX
from nemo_gym.schema.trajectories import TrajectoryRecord

Place = tuple[int, int]
"""Number of a line from 1, and where it begins in bytes."""

_TRAJECTORY = "ng_trajectory"


def places_in(path: Path) -> list[Place]:
    """The lines of a file that aren't blank."""
    places: list[Place] = []
    offset = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.isspace():
                places.append((number, offset))
            offset += len(line)
    return places


def evaluate_lines(source: int, path: Path, places: Sequence[Place], ignored: Collection[str]) -> list[RolloutDigest]:
    """What the checks say of each of these lines of the input numbered `source`."""
    digests = []
    with path.open("rb") as file:
        for number, offset in places:
            file.seek(offset)
            digests.append(evaluate(file.readline(), source, number, ignored))
    return digests


def evaluate(line: bytes, source: int, number: int, ignored: Collection[str]) -> RolloutDigest:
    """What the checks say of a line."""
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return _unreadable(_no_identity(source, number, "unreadable"), f"malformed JSON: {error}", ignored)
    if not isinstance(record, dict):
        problem = f"a JSON object was expected, not {type(record).__name__}"
        return _unreadable(_no_identity(source, number, "unreadable"), problem, ignored)
    digest = _identified(record, source, number)
    try:
        view = _view(record)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        return _unreadable(digest, f"{_TRAJECTORY}.{place}: {first['msg']}", ignored)
    digest.rollout_id = digest.rollout_id or _rollout_id(digest, view)
    _run_checks(digest, view, ignored)
    _count_calls(digest, view)
    return digest


def _view(record: Mapping[str, Any]) -> RolloutView:
    recorded = record.get(_TRAJECTORY)
    return RolloutView(record, None if recorded is None else TrajectoryRecord.model_validate(recorded))


def _run_checks(digest: RolloutDigest, view: RolloutView, ignored: Collection[str]) -> None:
    for spec in CHECK_REGISTRY.values():
        if spec.run is None or spec.id in ignored:
            continue
        found = _findings(spec, view) if view.has(spec.needs) else None
        if found is None:
            digest.unobserved.append(spec.id)
            continue
        digest.findings += [finding for finding in found if finding.check not in ignored]
        if any(finding.check == EXECUTION_ERROR for finding in found):
            digest.unobserved.append(spec.id)


def _findings(spec: CheckSpec, view: RolloutView) -> list[Finding] | None:
    """What a check found, None if it can't tell; its own failure is a finding about it."""
    assert spec.run is not None
    try:
        return list(spec.run(view))
    except CannotTell:
        return None
    except Exception as error:
        detail = {"failed_check": spec.id, "error": f"{type(error).__name__}: {error}"}
        return [Finding(EXECUTION_ERROR, detail)]


def _unreadable(digest: RolloutDigest, problem: str, ignored: Collection[str]) -> RolloutDigest:
    digest.rollout_id = digest.rollout_id or str(digest.task_index)
    digest.unobserved = [spec.id for spec in CHECK_REGISTRY.values() if spec.run is not None and spec.id not in ignored]
    if UNREADABLE not in ignored:
        digest.findings.append(Finding(UNREADABLE, {"error": problem}))
    return digest


def _identified(record: Mapping[str, Any], source: int, number: int) -> RolloutDigest:
    task, given = _index(record, TASK_INDEX), record.get("_ng_rollout_id")
    if task is None:
        return _no_identity(source, number, "unidentified")
    rollout, stage = _index(record, ROLLOUT_INDEX), _index(record, "stage_index")
    return RolloutDigest(source, number, task, rollout, stage, str(given) if given else "")


def _no_identity(source: int, number: int, what: str) -> RolloutDigest:
    return RolloutDigest(source, number, f"__{what}_record__:input-{source}:line-{number}", None, None, "")


def _index(record: Mapping[str, Any], name: str) -> TaskIndex | None:
    value = record.get(name)
    return value if isinstance(value, int | str) and not isinstance(value, bool) else None


def _rollout_id(digest: RolloutDigest, view: RolloutView) -> str:
    if view.trajectory is not None:
        return view.trajectory.rollout_id
    rollout: TaskIndex | None = digest.rollout_index
    return str(digest.task_index) if rollout is None else f"{digest.task_index}-{rollout}"


def _count_calls(digest: RolloutDigest, view: RolloutView) -> None:
    statistics = CallStatistics(has_calls=bool(view.calls), replayed=view.replayed_calls)
    for call in filter(is_failed, view.calls):
        status = str(call.response_metadata.status_code or "unknown")
        statistics.failed_by_status[status] = statistics.failed_by_status.get(status, 0) + 1
    statistics.ended_on_error = any(view.last_failed(calls) is not None for calls in view.chains.values())
    usage = view.usage or {}
    statistics.prompt, statistics.completion = _count(usage, "input_tokens"), _count(usage, "output_tokens")
    statistics.capture_prompt = sum(call.token_stats.prompt_tokens or 0 for call in view.calls)
    statistics.capture_completion = sum(call.token_stats.completion_tokens or 0 for call in view.calls)
    digest.statistics = statistics
    if view.has(CheckInput.OWNED_CALLS):
        digest.policy_calls = len(view.owned_calls)
        digest.successful_policy_calls = sum(map(is_successful, view.owned_calls))


def _count(usage: Mapping[str, Any], name: str) -> int:
    value = usage.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
