"""Short answers: the reward is 1 when a judge model says that a model's answer means the same as the expected one."""

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Any, ClassVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.config.errors import ConfigError
from nemo_gym.config.roots import resolve_under_roots
from nemo_gym.config_types import ModelServerRef
from nemo_gym.failure_kinds import VERIFIER_ERROR
from nemo_gym.judge import JudgeError, call_judge
from nemo_gym.openai_utils import (
    NeMoGymEasyInputMessage,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.verifier_fixture import VerifierFixture
from nemo_gym.verifiers.judging import (
    BothWays,
    Issue,
    Position,
    Verdict,
    ask_both_ways,
    delimited,
    escape_labels,
    fill,
    find_labels,
    issue_rates,
    read_verdict,
)
from nemo_gym.verifiers.patterns import PatternTimeoutError
from nemo_gym.verifiers.response_text import closing_text, last_assistant_text
from resources_servers.equivalence_llm_judge.answers import question_by_trusted_pattern as _extract_question_text
from resources_servers.equivalence_llm_judge.answers import question_of, reduced

__all__ = ["_extract_question_text"]

HERE = Path(__file__).parent
JUDGE_ERROR = "JUDGE_ERROR"
"""The verdict label of evaluations in old records in which the judge could not be asked."""


class LLMJudgeResourcesServerConfig(BaseResourcesServerConfig):
    """Rewards are finite; lengths are in characters. A relative template path is one in this folder, else in a root."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    judge_model_server: ModelServerRef
    judge_responses_create_params: NeMoGymResponseCreateParamsNonStreaming
    judge_endpoint_max_concurrency: int | None = Field(default=64, gt=0)
    judge_system_message: str | None = None
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


class JudgeEvaluation(BaseModel):
    """One call of the judge. `judgement_parsing_issues` is left out where there are none."""

    responses_create_params: NeMoGymResponseCreateParamsNonStreaming
    response: NeMoGymResponse
    verdict_label: str | None = None
    judgement_parsing_issues: list[str] = []

    @model_serializer(mode="wrap")
    def _without_empty_issues(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = serialize(self)
        if not self.judgement_parsing_issues:
            fields.pop("judgement_parsing_issues", None)
        return fields


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
    _judge_slots: AbstractAsyncContextManager[Any] = PrivateAttr(default_factory=nullcontext)

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        self._template = _template_at(self.config.judge_prompt_template_fpath)
        if self.config.judge_endpoint_max_concurrency is not None:
            self._judge_slots = asyncio.Semaphore(self.config.judge_endpoint_max_concurrency)

    async def verify(self, body: LLMJudgeVerifyRequest) -> LLMJudgeVerifyResponse:  # type: ignore[override]
        evaluations: list[JudgeEvaluation] = []
        answer = last_assistant_text(body.response)
        verdict: dict[str, Any] = {"reward": 0.0}
        try:
            reason = self._refusal(answer)
            verdict |= (
                {"failure_reason": reason} if reason else {"reward": await self._judged(body, answer, evaluations)}
            )
        except PatternTimeoutError as error:
            verdict |= {"mask_sample": True, "failure_kind": VERIFIER_ERROR, "failure_reason": str(error)}
        own = {"mask_sample": False, "failure_kind": None, "failure_reason": None, **verdict}
        own |= {"expected_answer": _expected_answer(body), "judge_evaluations": evaluations}
        return LLMJudgeVerifyResponse(**{**dict(body), **own})

    async def judge_reply(self, params: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        """What the judge model answers. Raises JudgeError."""
        return await call_judge(
            self.server_client,
            server_name=self.config.judge_model_server.name,
            url_path="/v1/responses",
            json=params,
            response_model=NeMoGymResponse,
        )

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        judged = [_evaluations_of(record) for task in tasks for record in task]
        return issue_rates([[issue for each in own for issue in self._issues_of(each)] for own in judged if own])

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

    async def _judged(self, body: LLMJudgeVerifyRequest, answer: str, evaluations: list[JudgeEvaluation]) -> float:
        """The reward. What the judge was asked goes to `evaluations`."""
        config, expected = self.config, _expected_answer(body)
        question = await reduced(question_of(body.responses_create_params), config.question_extract_regex)
        own_pattern = _own_pattern(body) if config.use_per_record_regex else None
        threshold = config.extraction_length_threshold
        is_long = own_pattern is not None and threshold is not None and len(expected) > threshold
        generated = answer if is_long else await reduced(answer, own_pattern or config.response_extract_regex)

        async def ask(first: str, second: str) -> Verdict:
            return await self._ask(question, first, second, evaluations)

        said = await ask_both_ways(
            ask,
            expected,
            self._safe(generated),
            equal_label=self._equal_label(),
            swap=config.check_twice_swap and not is_long,
        )
        if said.is_equal or said.depends_on_order:
            return said.reward(config.reward_if_swap_fails)
        if own_pattern is None or is_long or not config.check_full_generation_on_fail:
            return 0.0
        whole = BothWays(await ask(expected, self._safe(answer)), equal_label=self._equal_label())
        return config.reward_if_full_generation_succeeds if whole.is_equal else 0.0

    async def _ask(self, question: str, first: str, second: str, evaluations: list[JudgeEvaluation]) -> Verdict:
        params = self._prompt(question, first, second)
        async with self._judge_slots:
            response = await self.judge_reply(params)
        verdict = self._read(response)
        issues = [str(issue) for issue in verdict.issues]
        evaluation = JudgeEvaluation(
            responses_create_params=params,
            response=response,
            verdict_label=verdict.label,
            judgement_parsing_issues=issues,
        )
        evaluations.append(evaluation)
        if verdict.label is None and self.config.mask_without_verdict:
            raise JudgeError(f"the judge gave no verdict ({', '.join(issues)})")
        return verdict

    def _equal_label(self) -> str:
        """Empty, and so never given, where both labels are the same."""
        equal = self.config.judge_equal_label
        return "" if equal == self.config.judge_not_equal_label else equal

    def _safe(self, answer: str) -> str:
        return escape_labels(answer, self._labels()) if self.config.escape_labels_in_answers else answer

    def _labels(self) -> tuple[str, str]:
        return self.config.judge_equal_label, self.config.judge_not_equal_label

    def _prompt(self, question: str, first: str, second: str) -> NeMoGymResponseCreateParamsNonStreaming:
        if self.config.delimit_answers:
            first, second = delimited(first, "answer"), delimited(second, "answer")
        values = {"question": question, "expected_answer": first, "generated_answer": second}
        messages = [NeMoGymEasyInputMessage(role="user", content=fill(self._template, values))]
        if self.config.judge_system_message is not None:
            messages.insert(0, NeMoGymEasyInputMessage(role="system", content=self.config.judge_system_message))
        return self.config.judge_responses_create_params.model_copy(update={"input": messages})

    def _read(self, response: NeMoGymResponse) -> Verdict:
        return read_verdict(
            closing_text(response),
            self._labels(),
            position=self.config.judge_verdict_position,
            is_complete=response.status != "incomplete" and response.incomplete_details is None,
        )

    def _issues_of(self, evaluation: dict[str, Any]) -> list[str]:
        """The issues of a stored evaluation, read again from the judge's reply where they weren't stored."""
        stored = evaluation.get("judgement_parsing_issues")
        if stored is not None:
            return [str(issue) for issue in stored]
        try:
            reply = NeMoGymResponse.model_validate(evaluation.get("response"))
        except ValidationError:
            return [Issue.UNPARSEABLE]
        return [str(issue) for issue in self._read(reply).issues]


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


def _template_at(path: str) -> str:
    """Raises ConfigError when there is no such file, or it isn't text."""
    own = HERE / path
    file = own if own.exists() else resolve_under_roots(path)
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"judge_prompt_template_fpath: {path} can't be read ({error}); give a text file in {HERE.name}/, in the "
            "project's root, or by its absolute path"
        ) from error


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
