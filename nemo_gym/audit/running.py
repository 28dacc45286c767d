"""Running an audit: every check over some rows, one rollout after the other."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import math
import re
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from nemo_gym.audit.errors import AuditError
from nemo_gym.audit.models import FairJudge, ModelApp, Policy
from nemo_gym.audit.progress import place_where, tell
from nemo_gym.audit.report import Finding, Report
from nemo_gym.audit.stage import Stage, agents_for, staged
from nemo_gym.audit.statement import Audit, Row
from nemo_gym.audit.subject import Subject
from nemo_gym.audit.tricks import RESERVED_ROUTES, Trick, tricks_of
from nemo_gym.config.compose import compose
from nemo_gym.config.entries import implementation_blocks, reference_name
from nemo_gym.config.keys import CONFIG_PATHS_KEY_NAME, POLICY_MODEL_KEY_NAME, RESOURCES_SERVERS, RESPONSES_API_MODELS
from nemo_gym.config.layers import Sources
from nemo_gym.config.notices import quietly
from nemo_gym.config.overrides import parse_overrides
from nemo_gym.config.roots import resolve_under_roots
from nemo_gym.serve.failures import Cause
from nemo_gym.testing.replies import Replies, Script

ROLLOUT_SECONDS = 60.0
GRACE_SECONDS = 2.0
"""After these it is the event loop that is held up, so that nothing here can say so."""

MOST_LATE = 2
"""After so many replies without a verdict in time, nothing more is tried."""

CLOSING = "Done."
_TOO_LATE = f"{MOST_LATE} replies had no verdict in time"
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
REFERENCE = "right answer"
_USUAL_ROUTES = frozenset({"seed_session", "verify", "close_session"})
"""Routes of a resources server that an agent asks once in a rollout."""


def composed(subject: Subject, tokens: Sequence[str] = ()) -> DictConfig:
    """The config to audit, with the audit's models and changed by overrides. Raises ConfigError."""
    initial = {
        CONFIG_PATHS_KEY_NAME: [str(subject.config_path)],
        "policy_base_url": "",
        "policy_api_key": "",
        "policy_model_name": "audit",
        POLICY_MODEL_KEY_NAME: {RESPONSES_API_MODELS: {"dummy_model": {"entrypoint": "app.py"}}},
    }
    overrides = parse_overrides(tokens)
    if overrides.problems:
        raise overrides.problems[0]
    sources = Sources(initial=OmegaConf.create(initial), overrides=overrides, reads_env_file=False)
    with quietly():
        return staged(compose(sources, offline=True).config)


async def audited(name: str, subject: Subject, audit: Audit | None, config: DictConfig) -> Report:
    """Every check of one config. Raises AuditError where it can't be run at all."""
    run = Run(name, subject, audit or Audit(), config)
    async with run.stage.open():
        findings = [await run.reference(is_stated=audit is not None)]
        findings += [finding async for finding in run.tricks()]
        findings += await run.silent_judge()
    return Report(name, tuple(findings), is_late=run.late > 0)


@dataclass(frozen=True)
class Outcome:
    """A rollout's reward, None where it wasn't measured; `error` where it failed."""

    reward: float | None = None
    error: str = ""
    reached: tuple[str, ...] = ()


@dataclass
class Run:
    """One config with its rows and the servers that answer them, to be used while `stage` is open."""

    name: str
    subject: Subject
    audit: Audit
    config: DictConfig
    late: int = 0
    _check: str = REFERENCE
    _policy: Policy = field(default_factory=lambda: Policy(Script(None)))
    judge: FairJudge = field(default_factory=lambda: FairJudge(lambda prompt: ""))

    def __post_init__(self) -> None:
        # The models of a rollout are new ones each time.
        policy = ModelApp(lambda body: self._policy.answer(body))
        judge = ModelApp(lambda body: self.judge.answer(body))
        self.stage = Stage(self.config, policy, judge)
        self.agent, self.rows = self._agent_and_rows()

    @cached_property
    def _source_file(self) -> Path | None:
        """The environment's file, for an environment that is one."""
        blocks = implementation_blocks(OmegaConf.to_container(self.config, resolve=False), RESOURCES_SERVERS)  # type: ignore[arg-type]
        return next((Path(block["source_file"]) for _, _, block in blocks if block.get("source_file")), None)

    async def reference(self, *, is_stated: bool) -> Finding:
        """Whether right answers score in full."""
        about, audit = "the reference", self.audit
        if audit.reference is None:
            return self._without_reference(about, is_stated=is_stated)
        rewards: list[float] = []
        for row in self.rows:
            if (replies := audit.reference(row)) is None:
                continue
            outcome = await self._rollout(row, replies, is_right=True, closing=CLOSING)
            full = audit.full_for(row)
            if outcome.reward is None or outcome.reward < full:
                got = outcome.error or f"the reward {outcome.reward:g}, not {full:g}"
                note = f"The right answer to {_shown(row)} got {got}: mend the verifier, or `reference`."
                return self._finding(REFERENCE, about, "FAILED", outcome.reward, len(rewards) + 1, note)
            rewards.append(outcome.reward)
        if not rewards:
            note = "`reference` gives no reply for any row: say in `no_reference` why there can be none."
            return self._finding(REFERENCE, about, "FAILED", note=note)
        return self._finding(REFERENCE, about, "ok", min(rewards), len(rewards))

    async def tricks(self) -> AsyncIterator[Finding]:
        """A finding for each trick."""
        for trick in tricks_of(self.audit, self._labels()):
            self._check = trick.name
            reason = self.audit.not_tricks.get(trick.name)
            if self.late >= MOST_LATE:
                yield self._finding(trick.name, trick.about, "not tried", note=_TOO_LATE)
            elif reason:
                yield self._finding(trick.name, trick.about, "not tried", note=f"not a trick here: {reason}")
            else:
                yield await self._tried(trick)

    async def silent_judge(self) -> list[Finding]:
        """Whether a right answer pays although the judge says nothing, where a judge is asked."""
        if self.audit.judge is None or self.audit.reference is None or self.late >= MOST_LATE:
            return []
        check, about = "silent judge", "a right answer and a judge that says nothing"
        self._check, rewards = check, list[float]()
        for row in self.rows[:2]:
            replies = self.audit.reference(row)
            outcome = await self._rollout(row, replies, is_right=True, closing=CLOSING, is_silent=True)
            if not self.judge.prompts:
                continue
            rewards.append(outcome.reward or 0.0)
            if outcome.error or rewards[-1] > self.audit.low_for(row):
                note = outcome.error or "A judge without a verdict must not pay, nor end the rollout: mask the sample."
                return [self._finding(check, about, "FAILED", rewards[-1], len(rewards), note)]
        if not rewards:
            return [self._finding(check, about, "not tried", note="these rows are judged without asking")]
        return [self._finding(check, about, "ok", max(rewards), len(rewards))]

    async def _tried(self, trick: Trick) -> Finding:
        worst, tried = -math.inf, 0
        for row in self.rows:
            variants = [replies for replies in trick.replies(row) if not self._is_right(row, replies)]
            if not variants:
                continue
            tried += 1
            low, paid = self.audit.low_for(row), []
            for replies in variants:
                outcome = await self._rollout(row, replies, is_right=False, closing=None)
                if outcome.error or outcome.reached:
                    return self._finding(trick.name, trick.about, "FAILED", None, tried, _mishap(row, outcome))
                paid.append(low if outcome.reward is None else outcome.reward)
            got = min(paid) if trick.needs_all else max(paid)
            worst = max(worst, got)
            if got > low:
                note = f"It pays {got:g} for {_shown(row)}. {trick.fix}"
                return self._finding(trick.name, trick.about, "FAILED", got, tried, note)
        if not tried:
            return self._finding(trick.name, trick.about, "not tried", note="these rows give no occasion for it")
        return self._finding(trick.name, trick.about, "ok", worst, tried)

    def _is_right(self, row: Row, replies: Replies) -> bool:
        """Whether a trick happens to say just what the right answer does."""
        right = self.audit.reference(row) if self.audit.reference is not None else None
        return isinstance(right, str) and isinstance(replies, str) and right.strip() == replies.strip()

    async def _rollout(
        self, row: Row, replies: Replies, *, is_right: bool, closing: str | None, is_silent: bool = False
    ) -> Outcome:
        self._policy = Policy(Script(replies, after=closing))
        self.judge = FairJudge(lambda prompt: self.verdict(prompt, is_right, row), is_silent)
        self.stage.served.clear()
        tell(check=self._check, config=self.subject.flavor)
        printed = io.StringIO()
        try:
            with contextlib.redirect_stderr(printed), _held_up(self._is_own):
                async with asyncio.timeout(ROLLOUT_SECONDS):
                    answer = await self.stage.post(self.agent, "/run", row)
        except TimeoutError:
            self.late += 1
            return Outcome(error=no_verdict(place_where(self._is_own)))
        if answer.status != 200:
            return Outcome(error=f"an error instead of a verdict: {await self._told(answer, printed.getvalue())}")
        print(printed.getvalue(), end="", file=sys.stderr)
        return self._outcome(await answer.json())

    async def _told(self, answer: Any, printed: str) -> str:
        """Why there was an error, at the server where it began; with the line, where its traceback names one."""
        cause = Cause.of_headers(answer.headers)
        told = (await answer.text() if cause is None else cause.message)[:500]
        frames = [f"{file}:{line}" for file, line in _FRAME.findall(printed) if self._is_own(Path(file))]
        place = frames[-1] if frames else ""
        return told if not place or place in told else f"{place}: {told}"

    def _is_own(self, path: Path) -> bool:
        """Whether a file is the environment's."""
        return path == self._source_file or self.subject.folder in path.parents

    def _outcome(self, record: Any) -> Outcome:
        reward = record.get("reward") if isinstance(record, dict) else None
        if isinstance(reward, bool) or not isinstance(reward, int | float) or not math.isfinite(reward):
            return Outcome(error=f"{reward!r}, which is no reward")
        usual = {f"/{route}": int(route in _USUAL_ROUTES) for route in RESERVED_ROUTES}
        reached = tuple(path for path, count in self.stage.served.items() if count > usual.get(path, count))
        return Outcome(None if record.get("mask_sample") else float(reward), reached=reached)

    def verdict(self, prompt: str, is_right: bool, row: Row) -> str:
        """What a fair judge says."""
        judge = self.audit.judge
        if judge is None:
            return "I am asked to judge, and audit.py doesn't say in `judge` what a fair judge says."
        return judge(prompt, is_right, row) if callable(judge) else judge[0 if is_right else 1]

    def _labels(self) -> tuple[str, ...]:
        """Verdicts the judge may give: what audit.py and the config say."""
        said = self.audit.judge if isinstance(self.audit.judge, tuple) else ()
        blocks = implementation_blocks(OmegaConf.to_container(self.config, resolve=False), RESOURCES_SERVERS)  # type: ignore[arg-type]
        configured = [
            value for _, _, block in blocks for key, value in block.items() if "label" in key and isinstance(value, str)
        ]
        return tuple(dict.fromkeys((*said, *configured)))

    def _without_reference(self, about: str, *, is_stated: bool) -> Finding:
        if self.audit.no_reference:
            return self._finding(REFERENCE, about, "not tried", note=self.audit.no_reference)
        if is_stated and self._source_file is not None:
            note = f"{self._source_file} has no reference: decorate a function of (task) with @env.reference."
            return self._finding(REFERENCE, about, "FAILED", note=note)
        path = self.subject.folder / "audit.py"
        what = "has no `reference`" if is_stated else "isn't there"
        note = f"{path} {what}: write AUDIT = Audit(reference=…), or @env.reference in an environment's file."
        return self._finding(REFERENCE, about, "FAILED", note=note)

    def _finding(
        self, check: str, about: str, verdict: Any, reward: float | None = None, rows: int = 0, note: str = ""
    ) -> Finding:
        finding = Finding(self.subject.flavor, check, about, verdict, reward, rows, note)
        tell(finding=asdict(finding))
        return finding

    def _agent_and_rows(self) -> tuple[str, list[Row]]:
        """The first agent with example rows, declared by itself or by its resources server."""
        blocks = {name: block for name, _, block in implementation_blocks(OmegaConf.to_container(self.config))}  # type: ignore[arg-type]
        agents = agents_for(self.config)
        for name, block in agents:
            resources = blocks.get(reference_name(block, "resources_server") or "", {})
            for dataset in (*(block.get("datasets") or ()), *(resources.get("datasets") or ())):
                path = resolve_under_roots(dataset.get("jsonl_fpath") or "")
                if dataset.get("type") == "example" and path.is_file():
                    return name, list(islice(_rows(path), self.audit.rows))
        if self._source_file is not None:
            raise AuditError(f"{self._source_file} has no tasks: give `Environment(tasks=[…])` some.")
        what = "no agent" if not agents else "no example rows of its own"
        raise AuditError(f"{self.subject.config_path} has {what}: declare a data set of the type `example`.")


def _rows(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8") as lines:
        yield from (json.loads(line) for line in lines if line.strip())


def no_verdict(place: str) -> str:
    return f"no verdict within {ROLLOUT_SECONDS:g} s{f' (it is at {place})' if place else ''}"


@contextlib.contextmanager
def _held_up(is_own: Callable[[Path], bool]) -> Iterator[None]:
    """Have another thread tell where it is when the event loop can't notice that time is over."""
    timer = threading.Timer(ROLLOUT_SECONDS + GRACE_SECONDS, lambda: tell(late=no_verdict(place_where(is_own))))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _mishap(row: Row, outcome: Outcome) -> str:
    if outcome.reached:
        return f"The model can call {', '.join(outcome.reached)}: have the agent refuse what the row doesn't offer."
    return f"It gets {outcome.error} for {_shown(row)}. Whatever a model says, the verifier must answer."


def _shown(row: Row) -> str:
    text = json.dumps(row.get("responses_create_params", {}).get("input"), ensure_ascii=False)
    with contextlib.suppress(IndexError, KeyError, TypeError):
        content = row["responses_create_params"]["input"][-1]["content"]
        text = content if isinstance(content, str) else text
    first = " ".join(text.split())
    return f"“{first[:60]}{'…' if len(first) > 60 else ''}”"
