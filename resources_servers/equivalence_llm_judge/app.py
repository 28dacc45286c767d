"""Short answers: the reward is 1 when a judge model says that a model's answer means the same as the expected one."""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict, Field, FiniteFloat, PrivateAttr

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.judge import JudgeError, call_judge
from nemo_gym.verifier_fixture import VerifierFixture
from nemo_gym.verifiers.blame import ORDINARY, verdict_of_judge, verdict_without_end
from nemo_gym.verifiers.judges import Judge, JudgeEvaluation, JudgeSettings, issues_of, template_at
from nemo_gym.verifiers.judging import (
    BothWays,
    Position,
    Verdict,
    ask_both_ways,
    delimited,
    escape_labels,
    fill,
    find_labels,
    issue_rates,
)
from nemo_gym.verifiers.patterns import PatternTimeoutError
from nemo_gym.verifiers.response_text import last_assistant_text
from nemo_gym.verifiers.verdicts import unmeasured, verdict
from resources_servers.equivalence_llm_judge.answers import question_by_trusted_pattern as _extract_question_text
from resources_servers.equivalence_llm_judge.answers import question_of, reduced

__all__ = ["_extract_question_text"]

HERE = Path(__file__).parent
JUDGE_ERROR = "JUDGE_ERROR"
"""The verdict label of evaluations in old records in which the judge could not be asked."""


class LLMJudgeResourcesServerConfig(JudgeSettings, BaseResourcesServerConfig):
    """Rewards are finite; lengths are in characters. A relative template path is one in this folder, else in a root."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    judge_prompt_template_fpath: str = "prompt_templates/equivalence_llm_judge.txt"
    judge_equal_label: str = "[[A=B]]"
    judge_not_equal_label: str = "[[A!=B]]"
    question_extract_regex: str | None = None
    response_extract_regex: str | None = None
    msg_extraction_failure: str = "[NO VALID ANSWER EXTRACTED]"
    max_answer_chars: int | None = Field(default=None, gt=0)
    check_twice_swap: bool = False
    reward_if_swap_fails: FiniteFloat = 0.0
    use_per_record_regex: bool = True
    extraction_length_threshold: int | None = 120
    check_full_generation_on_fail: bool = True
    reward_if_full_generation_succeeds: FiniteFloat = 0.5
    escape_labels_in_answers: bool = True
    delimit_answers: bool = False
    judge_verdict_position: Position = Position.LAST
    mask_without_verdict: bool = False


class LLMJudgeRunRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")

    uuid: str | int | None = None
    expected_answer: str | None = None
    options: list[dict[str, Any]] | None = None
    metadata: dict[str, Any] | None = None
    template_metadata: dict[str, Any] | None = None


class LLMJudgeVerifyRequest(LLMJudgeRunRequest, BaseVerifyRequest):
    pass


class LLMJudgeVerifyResponse(BaseVerifyResponse):
    """The row with what the judge was asked and said."""

    model_config = ConfigDict(extra="allow")

    expected_answer: str
    judge_evaluations: list[JudgeEvaluation] = []


class LLMJudgeResourcesServer(SimpleResourcesServer):
    config: LLMJudgeResourcesServerConfig

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True

    _template: str = PrivateAttr(default="")
    _judge: Judge = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        self._template = template_at("judge_prompt_template_fpath", self.config.judge_prompt_template_fpath, HERE)
        self._judge = Judge(self.config, self.server_client, call_judge)

    async def verify(self, body: LLMJudgeVerifyRequest) -> LLMJudgeVerifyResponse:  # type: ignore[override]
        evaluations: list[JudgeEvaluation] = []
        answer, expected = last_assistant_text(body.response), _expected_answer(body)
        reason = self._refusal(answer)
        own = {"reward": 0.0, "failure_reason": reason} if reason else await self._own(body, answer, evaluations)
        return verdict(LLMJudgeVerifyResponse, body, own, expected_answer=expected, judge_evaluations=evaluations)

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        judged = [_evaluations_of(record) for task in tasks for record in task]
        return issue_rates([self._issues(own) for own in judged if own])

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        rates = {name: rate for name, rate in agent_metrics.items() if name.startswith("judgement_parsing_issue_rate")}
        return super().get_key_metrics(agent_metrics) | rates

    def _refusal(self, answer: str) -> str | None:
        """Why an answer isn't worth a judge's time, if it isn't."""
        if not answer:
            return "empty_final_answer"
        limit = self.config.max_answer_chars
        if limit is not None and len(answer) > limit:
            return f"final_answer_too_long: {len(answer)} characters, at most {limit} are judged"
        return None

    async def _own(
        self, body: LLMJudgeVerifyRequest, answer: str, evaluations: list[JudgeEvaluation]
    ) -> dict[str, Any]:
        """The reward, or why there is none. What the judge was asked goes to `evaluations`."""
        config, expected = self.config, _expected_answer(body)
        try:
            question = await reduced(question_of(body.responses_create_params), config.question_extract_regex)
        except PatternTimeoutError as error:
            return unmeasured(error)
        own_pattern = _own_pattern(body) if config.use_per_record_regex else None
        threshold = config.extraction_length_threshold
        is_long = own_pattern is not None and threshold is not None and len(expected) > threshold
        pattern = None if is_long else own_pattern or config.response_extract_regex
        try:
            generated = await reduced(answer, pattern)
        except PatternTimeoutError as error:
            return await verdict_without_end(error, partial(reduced, ORDINARY, pattern))

        async def ask(first: str, second: str) -> Verdict:
            return await self._ask(question, first, second, evaluations)

        swap = config.check_twice_swap and not is_long
        is_rescued = own_pattern is not None and not is_long and config.check_full_generation_on_fail
        whole = answer if is_rescued else None

        async def judged() -> dict[str, Any]:
            evaluations.clear()
            return {"reward": await self._judged(ask, expected, generated, whole, swap=swap)}

        return await verdict_of_judge(judged, partial(self._ask, question, expected, ORDINARY, []))

    async def _judged(
        self,
        ask: Callable[[str, str], Awaitable[Verdict]],
        expected: str,
        generated: str,
        whole: str | None,
        *,
        swap: bool,
    ) -> float:
        """The reward of what was generated, or else of the whole answer."""
        label = self._equal_label()
        said = await ask_both_ways(ask, expected, self._safe(generated), equal_label=label, swap=swap)
        if said.is_equal or said.depends_on_order:
            return said.reward(self.config.reward_if_swap_fails)
        if whole is None:
            return 0.0
        is_equal = BothWays(await ask(expected, self._safe(whole)), equal_label=label).is_equal
        return self.config.reward_if_full_generation_succeeds if is_equal else 0.0

    async def _ask(self, question: str, first: str, second: str, evaluations: list[JudgeEvaluation]) -> Verdict:
        if self.config.delimit_answers:
            first, second = delimited(first, "answer"), delimited(second, "answer")
        values = {"question": question, "expected_answer": first, "generated_answer": second}
        asked = fill(self._template, values)
        evaluation = await self._judge.evaluate(asked, self._labels(), position=self.config.judge_verdict_position)
        evaluations.append(evaluation)
        if evaluation.verdict_label is None and self.config.mask_without_verdict:
            raise JudgeError(f"the judge gave no verdict ({', '.join(evaluation.judgement_parsing_issues)})")
        return Verdict(evaluation.verdict_label)

    def _equal_label(self) -> str:
        """Empty, and so never given, where both labels are the same."""
        equal = self.config.judge_equal_label
        return "" if equal == self.config.judge_not_equal_label else equal

    def _safe(self, answer: str) -> str:
        return escape_labels(answer, self._labels()) if self.config.escape_labels_in_answers else answer

    def _labels(self) -> tuple[str, str]:
        return self.config.judge_equal_label, self.config.judge_not_equal_label

    def _issues(self, evaluations: list[dict[str, Any]]) -> list[str]:
        position = self.config.judge_verdict_position
        return [issue for each in evaluations for issue in issues_of(each, self._labels(), position)]


def _evaluations_of(record: dict[str, Any]) -> list[dict[str, Any]]:
    evaluations = record.get("judge_evaluations") or []
    return [each for each in evaluations if each.get("verdict_label") != JUDGE_ERROR]


def _expected_answer(body: LLMJudgeVerifyRequest) -> str:
    of_metadata = (body.metadata or {}).get("expected_answer")
    expected = of_metadata if body.expected_answer is None else body.expected_answer
    return "" if expected is None else str(expected)


def _own_pattern(body: LLMJudgeVerifyRequest) -> str | None:
    pattern = (body.template_metadata or {}).get("output_regex")
    return pattern if isinstance(pattern, str) and pattern else None


def _match_verdict_labels(text: str, equal_label: str, not_equal_label: str) -> list[str]:
    """The labels of a judge's reply, from left to right."""
    return [label for _, label in find_labels(text, (equal_label, not_equal_label))]


VERIFIER_FIXTURE = VerifierFixture(
    server_factory=lambda: _server_with_canned_judge(),
    request_model=LLMJudgeVerifyRequest,
    cases_path=HERE / "tests" / "verifier_cases.jsonl",
)


def _server_with_canned_judge() -> LLMJudgeResourcesServer:
    from resources_servers.equivalence_llm_judge.canned_judge import server

    return server()


if __name__ == "__main__":
    LLMJudgeResourcesServer.run_webserver()
