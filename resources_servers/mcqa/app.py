"""Multiple choice questions: the reward is 1 when the letter a model settles on is the right one."""

from functools import partial
from typing import Any, ClassVar

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.verifiers.blame import ORDINARY, verdict_without_end
from nemo_gym.verifiers.long_texts import read_apart
from nemo_gym.verifiers.metrics import AVERAGE, MAJORITY, PASS, Headline, PassMetricsMixin
from nemo_gym.verifiers.patterns import PatternError, PatternTimeoutError, find_groups
from nemo_gym.verifiers.response_text import all_text
from nemo_gym.verifiers.verdicts import RowError, verdict
from resources_servers.mcqa.answers import GradingMode, Options, RowGradingMode, read_answer, read_match


class MCQAResourcesServerConfig(BaseResourcesServerConfig):
    """`grading_mode` goes before the rows' own."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    grading_mode: GradingMode | None = None


class MCQARunRequest(BaseRunRequest):
    uuid: str | None = None
    options: list[dict[str, str | None]] | None = None
    expected_answer: str | None = None
    metadata: dict[str, Any] | None = None
    grading_mode: RowGradingMode = "strict_single_letter_boxed"
    template_metadata: dict[str, Any] | None = None


class MCQAVerifyRequest(MCQARunRequest, BaseVerifyRequest):
    pass


class MCQAVerifyResponse(BaseVerifyResponse):
    """`expected_answer` is the right letter as compared, `extracted_answer` the one found, if any."""

    expected_answer: str
    extracted_answer: str | None = None


class MCQAResourcesServer(PassMetricsMixin, SimpleResourcesServer):
    config: MCQAResourcesServerConfig

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True
    answer_key: ClassVar[str | None] = "extracted_answer"
    key_names: ClassVar[tuple[str, ...]] = ("mean/reward", "pass@1/accuracy")
    headlines: ClassVar[tuple[Headline, ...]] = (
        Headline(AVERAGE, ("accuracy", "no_answer")),
        Headline(PASS, ("no_answer",)),
        Headline(MAJORITY, ("accuracy",)),
    )

    async def verify(self, body: MCQAVerifyRequest) -> MCQAVerifyResponse:  # type: ignore[override]
        gold = (body.expected_answer or "").strip().upper()
        try:
            answer = await self.extract_answer(body)
        except (PatternTimeoutError, RowError) as error:
            pattern, options = (body.template_metadata or {}).get("output_regex"), Options.of(body.options)
            own = await verdict_without_end(error, partial(matched_letter, pattern, ORDINARY, options))
            return verdict(MCQAVerifyResponse, body, own, expected_answer=gold)
        reward = float(answer is not None and answer == gold)
        return verdict(MCQAVerifyResponse, body, reward=reward, expected_answer=gold, extracted_answer=answer)

    async def extract_answer(self, body: MCQAVerifyRequest) -> str | None:
        """The letter of the response: by the row's own patterns, else by the grading mode.

        Raises PatternTimeoutError for a pattern that takes too long, RowError for one with several groups.
        """
        text = all_text(body.response).strip()
        if not text:
            return None
        options, template = Options.of(body.options), body.template_metadata or {}
        answer = await matched_letter(template.get("output_regex"), text, options)
        if answer is not None:
            return answer
        prefix = template.get("answer_prefix")
        mode = self.config.grading_mode or body.grading_mode
        return await read_apart(len(text), read_answer, mode, text, options, prefix)


async def matched_letter(output_regex: Any, text: str, options: Options) -> str | None:
    """The letter by a row's pattern, or by the first of a list of them that yields one.

    Raises PatternTimeoutError, RowError.
    """
    for pattern in output_regex if isinstance(output_regex, list) else [output_regex]:
        answer = await _last_match(pattern, text, options) if isinstance(pattern, str) else None
        if answer is not None:
            return answer
    return None


async def _last_match(pattern: str, text: str, options: Options) -> str | None:
    try:
        matches = await find_groups(pattern, text, ignore_case=True)
    except PatternError:
        return None
    if not matches:
        return None
    if not isinstance(matches[-1], str):
        raise RowError(f"output_regex {pattern!r} has several groups; leave one that holds the answer")
    return read_match(matches[-1], options)


if __name__ == "__main__":
    MCQAResourcesServer.run_webserver()
