"""Maths with an answer in a box: the reward is 1 when a library, or else a judge, finds it to be the expected one."""

import os
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from fastapi import FastAPI
from pydantic import Field, PrivateAttr

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.judge import JudgeError, call_judge
from nemo_gym.verifiers.blame import verdict_of_judge
from nemo_gym.verifiers.extraction import last_box as _extract_last_boxed_answer
from nemo_gym.verifiers.judges import Judge, JudgeEvaluation, JudgeSettings, template_at
from nemo_gym.verifiers.judging import Position, Verdict, ask_both_ways, delimited, escape_labels, fill
from nemo_gym.verifiers.metrics import AVERAGE, MAJORITY, PASS, Headline, PassMetricsMixin
from nemo_gym.verifiers.packages import require_package
from nemo_gym.verifiers.response_text import all_text
from nemo_gym.verifiers.verdicts import RowError, unmeasured, verdict
from nemo_gym.verifiers.worker_pool import Library, WorkerCrashError, WorkerError, WorkerPool, WorkerTimeoutError
from resources_servers.math_with_judge.symbolic import Checked
from resources_servers.math_with_judge.symbolic import run_math_verify as _run_math_verify

__all__ = ["JudgeEvaluation", "_extract_last_boxed_answer", "_run_math_verify"]

HERE = Path(__file__).parent
LIBRARY = "math_verify"
_WORKER_BYTES = 4 << 30
_ORDINARY_BOX = "17"


class LibraryJudgeMathResourcesServerConfig(JudgeSettings, BaseResourcesServerConfig):
    """`library_verifier_timeout_seconds` hold for one check, which no more than `library_verifier_max_concurrency`
    processes, nor more than there are processors, make at once. Relative template paths are in this folder, else in a
    root."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    should_use_judge: bool = True
    library_verifier_timeout_seconds: float = Field(default=10.0, gt=0)
    library_verifier_max_concurrency: int = Field(default=32, gt=0)
    verify_box_only: bool = False
    mask_library_failures: bool = False
    judge_system_template_fpath: str = "prompt_templates/judge_system.txt"
    judge_prompt_template_fpath: str = "prompt_templates/judge.txt"
    judge_equal_label: str = "[[A=B]]"
    judge_not_equal_label: str = "[[A!=B]]"
    judge_verdict_position: Position = Position.FIRST
    escape_labels_in_answers: bool = True
    delimit_answers: bool = False
    mask_without_verdict: bool = False


class LibraryJudgeMathRunRequest(BaseRunRequest):
    question: str
    expected_answer: str


class LibraryJudgeMathVerifyRequest(LibraryJudgeMathRunRequest, BaseVerifyRequest):
    pass


class LibraryJudgeMathVerifyResponse(BaseVerifyResponse):
    """`judge_evaluations` is null where no judge was asked."""

    question: str
    expected_answer: str
    extracted_answer: str | None = None
    library_reward: float = 0.0
    judge_evaluations: list[JudgeEvaluation] | None = None


class LibraryJudgeMathResourcesServer(PassMetricsMixin, SimpleResourcesServer):
    config: LibraryJudgeMathResourcesServerConfig

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True
    answer_key: ClassVar[str | None] = "extracted_answer"
    key_names: ClassVar[tuple[str, ...]] = ("mean/input_tokens", "mean/output_tokens")
    headlines: ClassVar[tuple[Headline, ...]] = (
        Headline(AVERAGE),
        Headline(PASS, without=("no_answer",)),
        Headline(MAJORITY, without=("no_answer",)),
    )

    _pool: WorkerPool = PrivateAttr()
    _judge: Judge = PrivateAttr()
    _system: str = PrivateAttr(default="")
    _template: str = PrivateAttr(default="")

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        config = self.config
        workers = min(config.library_verifier_max_concurrency, os.cpu_count() or 1)
        self._pool = WorkerPool(workers, memory_bytes=_WORKER_BYTES)
        self._judge = Judge(config, self.server_client, call_judge)
        self._system = template_at("judge_system_template_fpath", config.judge_system_template_fpath, HERE)
        self._template = template_at("judge_prompt_template_fpath", config.judge_prompt_template_fpath, HERE)

    def setup_webserver(self) -> FastAPI:
        require_package(LIBRARY, f"{self.config.name} compares answers with the package math-verify")
        return super().setup_webserver()

    async def verify(self, body: LibraryJudgeMathVerifyRequest) -> LibraryJudgeMathVerifyResponse:  # type: ignore[override]
        text = all_text(body.response)
        boxed = (_extract_last_boxed_answer(text) or "").strip()
        own: dict[str, Any] = {"reward": 0.0}
        if boxed:
            try:
                own = await self._verify_answer(body.question, body.expected_answer, text, boxed)
            except (WorkerError, RowError) as error:
                own = unmeasured(error)
        return verdict(LibraryJudgeMathVerifyResponse, body, own)

    async def _verify_answer(self, question: str, expected: str, text: str, boxed: str) -> dict[str, Any]:
        checked = await self._verify_answer_with_library(expected, text, boxed)
        own = {"extracted_answer": checked.extracted, "library_reward": checked.score}
        if not self.config.should_use_judge or checked.score > 0.5:
            return {**own, "reward": checked.score}
        evaluations: list[JudgeEvaluation] = []
        judged = await self._judged(question, expected, boxed, evaluations)
        return {**own, **judged, "judge_evaluations": evaluations}

    async def _judged(
        self, question: str, expected: str, boxed: str, evaluations: list[JudgeEvaluation]
    ) -> dict[str, Any]:
        """What the judge says of a box, or would not say."""

        async def ask() -> dict[str, Any]:
            evaluations.clear()
            return {"reward": await self._verify_answer_with_judge(question, expected, boxed, evaluations)}

        return await verdict_of_judge(
            ask, partial(self._verify_answer_with_judge, question, expected, _ORDINARY_BOX, [])
        )

    async def _verify_answer_with_library(self, expected: str, text: str, boxed: str) -> Checked:
        r"""What the library says; nothing, where it comes to no end. Raises WorkerError, RowError.

        It reads the whole text, and so may take a formula for the answer when it can't read the box.
        """
        read = rf"\boxed{{{boxed}}}" if self.config.verify_box_only else text
        masks = self.config.mask_library_failures
        seconds = self.config.library_verifier_timeout_seconds
        try:
            checked = await self._pool.run(_run_math_verify, expected, read, Library(LIBRARY), timeout=seconds)
        except (WorkerTimeoutError, WorkerCrashError):
            if masks:
                raise
            return Checked()
        if masks and not checked.is_expected_read:
            raise RowError(f"math-verify reads no answer in expected_answer {expected[:200]!r}; give it as LaTeX")
        return checked

    async def _verify_answer_with_judge(
        self, question: str, expected: str, boxed: str, evaluations: list[JudgeEvaluation]
    ) -> float:
        """The reward. What the judge was asked goes to `evaluations`. Raises JudgeError."""
        config = self.config
        labels = (config.judge_equal_label, config.judge_not_equal_label)
        generated = escape_labels(boxed, labels) if config.escape_labels_in_answers else boxed

        async def ask(first: str, second: str) -> Verdict:
            if config.delimit_answers:
                first, second = delimited(first, "answer"), delimited(second, "answer")
            prompt = fill(self._template, {"question": question, "first_answer": first, "second_answer": second})
            system = self._system if config.judge_system_message is None else None
            evaluation = await self._judge.evaluate(
                prompt, labels, system=system, position=config.judge_verdict_position
            )
            evaluations.append(evaluation)
            if evaluation.verdict_label is None and config.mask_without_verdict:
                raise JudgeError(f"the judge gave no verdict ({', '.join(evaluation.judgement_parsing_issues)})")
            return Verdict(evaluation.verdict_label)

        return (await ask_both_ways(ask, expected, generated, equal_label=config.judge_equal_label)).reward()

    def scores(self, record: dict[str, Any]) -> dict[str, float | bool]:
        judged = {} if record.get("judge_evaluations") is None else {"judge_accuracy": record["reward"]}
        return {"symbolic_accuracy": record.get("library_reward", 0.0), **judged}


if __name__ == "__main__":
    LibraryJudgeMathResourcesServer.run_webserver()
