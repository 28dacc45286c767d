"""Why a run is stuck, or what takes longest in it: sentences for a person, the most important first."""

from __future__ import annotations

from collections.abc import Iterator

from nemo_gym.config.keys import MODEL_ENDPOINT_READINESS_TIMEOUT_SECONDS_KEY_NAME
from nemo_gym.launch.ages import shown_seconds
from nemo_gym.launch.process_stats import STOPPED, WAITS_FOR_DISK
from nemo_gym.launch.view import ProcessView, RolloutView, RunView


def findings(view: RunView, *, is_launcher_silent: bool) -> list[str]:
    """What there is to say about a run."""
    found = [*_of_launcher(view, is_launcher_silent)]
    for process in view.processes:
        found += _of_process(process)
    return [*found, *_of_waits(view), *_of_backends(view), *_of_collectors(view), *_of_rollouts(view)]


def _of_launcher(view: RunView, is_silent: bool) -> Iterator[str]:
    if is_silent:
        yield f"The run's own process (pid {view.pid}) gives no answer, so nothing starts servers again now."


def _of_process(process: ProcessView) -> Iterator[str]:
    who = process.name if process.servers == [process.name] else f"{process.name} ({', '.join(process.servers)})"
    if process.state == "restarting":
        why = "it was asked to" if process.last_end is None else f"its process {process.last_end}"
        yield f"{who} is being started again: {why}."
    elif process.state == "ended":
        yield f"{who} died and is not started again: its process {process.last_end}."
    elif not process.is_there:
        yield f"{who} died: there is no process {process.pid} any more."
    elif process.state == "starting":
        yield f"{who} (pid {process.pid}) is still starting."
    elif process.answers is False:
        since = "" if process.silent_s is None else f", for {shown_seconds(process.silent_s)} now"
        yield f"{who} (pid {process.pid}) gives no answer{since}: {_why_silent(process)}."
    elif process.last_end is not None:
        yield f"{who} died and serves again (pid {process.pid}): its process before {process.last_end}."


def _why_silent(process: ProcessView) -> str:
    remedy = f"`gym env restart {process.name}` starts it anew"
    if process.letter == STOPPED:
        return f"it is stopped, as by SIGSTOP; `kill -CONT {process.pid}` lets it go on, {remedy}"
    if process.letter == WAITS_FOR_DISK:
        return f"it waits for a disk or another device; {remedy}"
    what = f"its event loop is held {process.held}" if process.held else "something blocks its event loop"
    return f"{what}; {remedy}"


def _of_waits(view: RunView) -> Iterator[str]:
    for wait in view.waits:
        why = f": {wait.why}" if wait.why else ""
        yield (
            f"The run waits for {wait.endpoint} to answer{why}. It has waited {shown_seconds(wait.seconds)} of at most "
            f"{shown_seconds(wait.limit)}; +{MODEL_ENDPOINT_READINESS_TIMEOUT_SECONDS_KEY_NAME}=N changes that, 0 "
            "doesn't wait."
        )


def _of_backends(view: RunView) -> Iterator[str]:
    for backend in view.backends:
        who = ", ".join(backend.of)
        if backend.refuses is not None:
            yield (
                f"{backend.url} {backend.refuses} (HTTP {backend.status}), so every call of {who} fails at once: "
                f"set that right and start the servers again."
            )
        else:
            yield (
                f"{backend.url} asked for fewer calls (HTTP {backend.status}): {who} waits, "
                f"for {shown_seconds(backend.seconds)} more."
            )


def _of_collectors(view: RunView) -> Iterator[str]:
    for collector in view.collectors:
        if not collector.answers:
            yield f"The collector (pid {collector.pid}) gives no answer."
        admission = collector.admission or {}
        limit, asked = admission.get("limit"), admission.get("asked")
        if limit is not None and limit != asked:
            of = "" if asked is None else f" instead of {asked}"
            yield f"The model's provider asked for fewer requests: at most {limit} rollouts run at once{of} now."


def _of_rollouts(view: RunView) -> Iterator[str]:
    if view.rollouts:
        yield f"Oldest: {_what(view.rollouts[0])}."
    elif not any(view.stages.values()) and not view.waits:
        yield "No rollout is in flight."


def _what(rollout: RolloutView) -> str:
    seconds = shown_seconds(rollout.stage_s)
    if rollout.stage == "retry":
        return f"rollout {rollout.rollout} failed and has waited {seconds} to be tried again"
    if rollout.stage == "running":
        return f"rollout {rollout.rollout} was sent to {rollout.server} {seconds} ago"
    detail = f" ({rollout.detail})" if rollout.detail else ""
    return f"rollout {rollout.rollout} has waited {seconds} in {rollout.stage} at {rollout.server}{detail}"
