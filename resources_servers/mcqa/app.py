"""Multiple choice questions: the reward is 1 when the letter a model settles on is the right one."""

from typing import Any, ClassVar

from pydantic import BaseModel

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.failure_kinds import VERIFIER_ERROR
from nemo_gym.reward_profile import compute_pass_majority_metrics, highest_k_metrics
from nemo_gym.verifiers.patterns import PatternError, PatternTimeoutError, find_groups
from resources_servers.mcqa.answers import GradingMode, Options, RowGradingMode, read_answer, read_match


class MCQAResourcesServerConfig(BaseResourcesServerConfig):
    """`grading_mode` goes before the rows' own."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    grading_mode: GradingMode | None = None


class MCQAQuestion(BaseModel):
    """What of a row says how to grade it."""

    uuid: str | None = None
    options: list[dict[str, str | None]] | None = None
    expected_answer: str | None = None
    metadata: dict[str, Any] | None = None
    grading_mode: RowGradingMode = "strict_single_letter_boxed"
    template_metadata: dict[str, Any] | None = None


class MCQARunRequest(MCQAQuestion, BaseRunRequest):
    pass


class MCQAVerifyRequest(MCQARunRequest, BaseVerifyRequest):
    pass


class MCQAVerifyResponse(BaseVerifyResponse):
    """`expected_answer` is the right letter as compared, `extracted_answer` the one found, if any."""

    expected_answer: str
    extracted_answer: str | None = None


class MCQAResourcesServer(SimpleResourcesServer):
    config: MCQAResourcesServerConfig

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True

    async def verify(self, body: MCQAVerifyRequest) -> MCQAVerifyResponse:  # type: ignore[override]
        gold = (body.expected_answer or "").strip().upper()
        verdict: dict[str, Any] = {"reward": 0.0}
        try:
            answer = await self.extract_answer(body)
            verdict = {"reward": float(answer is not None and answer == gold)}
        except PatternTimeoutError as error:
            answer = None
            verdict |= {"mask_sample": True, "failure_kind": VERIFIER_ERROR, "failure_reason": str(error)}
        return MCQAVerifyResponse(
            responses_create_params=body.responses_create_params,
            response=body.response,
            expected_answer=gold,
            extracted_answer=answer,
            **verdict,
        )

    async def extract_answer(self, body: MCQAVerifyRequest) -> str | None:
        """The letter of the response: by the row's own patterns, else by the grading mode.

        Raises PatternTimeoutError for a pattern that takes too long, ValueError for one with several groups.
        """
        text = body.response.output_text.strip()
        if not text:
            return None
        options, template = Options.of(body.options), body.template_metadata or {}
        for pattern in _patterns(template.get("output_regex")):
            answer = await _last_match(pattern, text, options)
            if answer is not None:
                return answer
        prefix = template.get("answer_prefix")
        return read_answer(self.config.grading_mode or body.grading_mode, text, options, prefix)

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        return compute_pass_majority_metrics(tasks, answer_key="extracted_answer")[0]

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        shown = {name: agent_metrics[name] for name in ("mean/reward",) if name in agent_metrics}
        shown |= highest_k_metrics(agent_metrics, "pass@1[avg-of-{k}]", score_names=["accuracy", "no_answer"])
        shown |= highest_k_metrics(agent_metrics, "pass@{k}", score_names=["no_answer"])
        shown |= highest_k_metrics(agent_metrics, "majority@{k}", score_names=["accuracy"])
        return shown | {name: agent_metrics[name] for name in ("pass@1/accuracy",) if name in agent_metrics}


def _patterns(output_regex: Any) -> list[str]:
    patterns = output_regex if isinstance(output_regex, list) else [output_regex]
    return [pattern for pattern in patterns if isinstance(pattern, str)]


async def _last_match(pattern: str, text: str, options: Options) -> str | None:
    try:
        matches = await find_groups(pattern, text, ignore_case=True)
    except PatternError:
        return None
    if not matches:
        return None
    if not isinstance(matches[-1], str):
        raise ValueError(f"output_regex {pattern!r} has several groups; leave one that holds the answer")
    return read_match(matches[-1], options)


if __name__ == "__main__":
    MCQAResourcesServer.run_webserver()
