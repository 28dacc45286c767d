"""Short answers compared as text: the reward is 1 for the expected one in any of the usual ways to write it."""

from typing import Any, ClassVar, Literal

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.verifiers.extraction import last_closed_box, last_line, stated_answer, unwrapped
from nemo_gym.verifiers.long_texts import read_apart
from nemo_gym.verifiers.response_text import assistant_text
from nemo_gym.verifiers.verdicts import verdict
from resources_servers.string_match.comparison import Strictness, without_bold
from resources_servers.string_match.comparison import grade as _grade_string_match

__all__ = ["_grade_string_match"]

ExtractionMode = Literal["boxed", "final_answer", "last_line", "full_response"]


class StringMatchResourcesServerConfig(BaseResourcesServerConfig):
    """`exact_numbers`: a number that is merely near gets nothing. `whole_list_words`: "and" and "or" part a list only
    where they are words of their own."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    exact_numbers: bool = False
    whole_list_words: bool = False


class StringMatchRunRequest(BaseRunRequest):
    expected_answer: str
    extraction_mode: ExtractionMode = "final_answer"
    case_sensitive: bool = False
    metadata: dict[str, Any] | None = None


class StringMatchVerifyRequest(StringMatchRunRequest, BaseVerifyRequest):
    pass


class StringMatchVerifyResponse(BaseVerifyResponse):
    """`extracted_answer` is what was compared, null where the response has none."""

    expected_answer: str
    extracted_answer: str | None = None


class StringMatchResourcesServer(SimpleResourcesServer):
    config: StringMatchResourcesServerConfig

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True

    async def verify(self, body: StringMatchVerifyRequest) -> StringMatchVerifyResponse:  # type: ignore[override]
        text = assistant_text(body.response)
        answer, reward = await read_apart(len(text) + len(body.expected_answer), self.judged, text, body)
        return verdict(StringMatchVerifyResponse, body, reward=reward, extracted_answer=answer)

    def judged(self, text: str, row: StringMatchRunRequest) -> tuple[str | None, float]:
        """The answer in a text, and its reward."""
        answer = _extract_answer(text, row.extraction_mode)
        strictness = Strictness(self.config.exact_numbers, self.config.whole_list_words)
        return answer, _answers_match(answer, row.expected_answer, row.case_sensitive, strictness)


def _extract_answer(text: str, extraction_mode: ExtractionMode = "final_answer") -> str | None:
    """The answer of a text, None where it has none, or an empty one."""
    if extraction_mode == "last_line":
        return last_line(text)
    if extraction_mode == "full_response":
        return text.strip() or None
    stated = stated_answer(text) if extraction_mode == "final_answer" else None
    return stated if stated is not None and stated.strip("*_ ") else _boxed(text)


def _answers_match(
    answer: str | None, expected: str, case_sensitive: bool = False, strictness: Strictness | None = None
) -> float:
    """The reward of an answer, as it is or without the marks of bold type around it."""
    if not answer or not expected.strip():
        return 0.0
    candidates = {answer.strip(), without_bold(answer)}
    if case_sensitive:
        return float(expected.strip() in candidates)
    return max(_grade_string_match(candidate, expected, strictness) for candidate in candidates)


def _boxed(text: str) -> str | None:
    return unwrapped(last_closed_box(text) or "") or None


if __name__ == "__main__":
    StringMatchResourcesServer.run_webserver()
