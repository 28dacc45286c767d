"""Short questions of fact: a judge model says whether an answer is correct, incorrect or not attempted."""

from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict, PrivateAttr

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.judge import JudgeError, call_judge
from nemo_gym.openai_utils import NeMoGymChatCompletionCreateParamsNonStreaming, NeMoGymResponse
from nemo_gym.prompt import PromptConfig, load_prompt_config
from nemo_gym.verifiers.blame import ORDINARY, verdict_of_judge
from nemo_gym.verifiers.judges import Judge, JudgeSettings
from nemo_gym.verifiers.judging import delimited, fill, read_grade
from nemo_gym.verifiers.metrics import PassMetricsMixin, f1_scores, flat
from nemo_gym.verifiers.response_text import assistant_texts, last_user_text
from nemo_gym.verifiers.verdicts import RowError, unmeasured, verdict

HERE = Path(__file__).parent
VERDICTS = {"A": "correct", "B": "incorrect", "C": "not_attempted"}
PARSING_ISSUES = "judgement_parsing_issue_rate"
_CHAT_MAX_TOKENS = 64


class SimpleQAConfig(JudgeSettings, BaseResourcesServerConfig):
    """`judge_prompt_path` is a YAML file with a template under `user`, in this folder, else under a root."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    judge_prompt_path: str = "prompt_templates/judge.yaml"
    use_chat_completions_for_judge: bool = False
    grade_letter_anywhere: bool = False
    delimit_answers: bool = False
    mask_without_verdict: bool = False


class SimpleQARunRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")

    id: str | int | None = None
    question: str | None = None
    expected_answer: str | None = None


class SimpleQAVerifyRequest(SimpleQARunRequest, BaseVerifyRequest):
    pass


class SimpleQAVerifyResponse(BaseVerifyResponse):
    """The row with what was judged, and how."""

    model_config = ConfigDict(extra="allow")

    expected_answer: str | None = None
    extracted_answer: str | None = None
    verdict: str | None = None
    judge_output: str | None = None
    is_correct: float = 0.0
    is_incorrect: float = 0.0
    is_not_attempted: float = 0.0


class SimpleQAServer(PassMetricsMixin, SimpleResourcesServer):
    config: SimpleQAConfig

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True

    _judge: Judge = PrivateAttr()
    _prompt: PromptConfig = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        self._judge = Judge(self.config, self.server_client, call_judge)
        own = HERE / self.config.judge_prompt_path
        self._prompt = load_prompt_config(str(own) if own.is_file() else self.config.judge_prompt_path)

    async def verify(self, body: SimpleQAVerifyRequest) -> SimpleQAVerifyResponse:  # type: ignore[override]
        generation = extract_text_from_response(body.response)
        try:
            own = await verdict_of_judge(*(partial(self._graded, body, said) for said in (generation, ORDINARY)))
        except RowError as error:
            own = unmeasured(error)
        return verdict(SimpleQAVerifyResponse, body, own, extracted_answer=generation)

    async def _graded(self, body: SimpleQAVerifyRequest, generation: str) -> dict[str, Any]:
        """The fields of a verdict. Raises RowError, JudgeError."""
        said = await self._ask(self._question(body, generation))
        grade = self._grade(said)
        if grade is None and self.config.mask_without_verdict:
            raise JudgeError(f"the judge gave no grade: {said[:200]}")
        found = VERDICTS[grade or "C"]
        scores = {f"is_{each}": float(each == found) for each in VERDICTS.values()}
        return {"reward": scores["is_correct"], "verdict": found, "judge_output": said, **scores}

    def scores(self, record: dict[str, Any]) -> dict[str, float | bool]:
        return {each: record.get(f"is_{each}") or 0.0 for each in VERDICTS.values()}

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        """Those of the three scores, with F1 beside each, and how many of the judge's replies held no grade."""
        metrics = super().compute_metrics(tasks)
        outputs = [record["judge_output"] for record in flat(tasks) if record.get("judge_output")]
        unread = sum(1 for output in outputs if self._grade(output) is None)
        issues = {PARSING_ISSUES: unread / len(outputs)} if outputs else {}
        return metrics | f1_scores(metrics) | issues

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        issues = {PARSING_ISSUES: agent_metrics[PARSING_ISSUES]} if PARSING_ISSUES in agent_metrics else {}
        return super().get_key_metrics(agent_metrics) | issues

    def _question(self, body: SimpleQAVerifyRequest, generation: str) -> str:
        """What the judge is asked. Raises RowError for a row without an answer."""
        if not (body.expected_answer or "").strip():
            raise RowError("expected_answer is missing or blank: the judge needs it to compare with")
        question = last_user_text(body.responses_create_params.input) if body.question is None else body.question
        answer = delimited(generation, "answer") if self.config.delimit_answers else generation
        values = {"question": question, "expected_answer": body.expected_answer or "", "generation": answer}
        return fill(self._prompt.user, values)

    async def _ask(self, question: str) -> str:
        """What the judge says, not blank. Raises JudgeError."""
        asked = self._judge.request(question, system=self._prompt.system)
        if self.config.use_chat_completions_for_judge:
            completion = await self._judge.ask_chat(_as_chat(asked))
            said = (completion.choices[0].message.content if completion.choices else None) or ""
        else:
            said = extract_text_from_response(await self._judge.ask(asked))
        if not said.strip():
            raise JudgeError("the judge's reply is empty")
        return said.strip()

    def _grade(self, said: str) -> str | None:
        return read_grade(said, list(VERDICTS), whole_words=not self.config.grade_letter_anywhere)


def extract_text_from_response(response: NeMoGymResponse) -> str:
    """The texts of the last assistant message that has any, joined by newlines and stripped; else nothing."""
    return next((text for text in reversed(assistant_texts(response)) if text), "")


def parse_judge_grade(text: str) -> str:
    """The grade a judge's reply gives: A, B or C, which it also is where there is none."""
    return read_grade(text, list(VERDICTS), whole_words=True) or "C"


def _as_chat(asked: Any) -> NeMoGymChatCompletionCreateParamsNonStreaming:
    return NeMoGymChatCompletionCreateParamsNonStreaming(
        messages=[{"role": message.role, "content": message.content} for message in asked.input],
        max_tokens=asked.max_output_tokens or _CHAT_MAX_TOKENS,
        temperature=asked.temperature or 0.0,
        top_p=asked.top_p or 1.0,
    )


if __name__ == "__main__":
    SimpleQAServer.run_webserver()
