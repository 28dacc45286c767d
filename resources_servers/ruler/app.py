"""Questions about long texts, as RULER asks them: the reward is the share of references that the answer holds."""

import re
from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.verifiers.long_texts import read_apart, size_of
from nemo_gym.verifiers.response_text import all_text, last_user_text
from nemo_gym.verifiers.verdicts import RowError, unmeasured, verdict

ONE_IS_ENOUGH = frozenset({"qa_1", "qa_2"})


class RulerResourcesServerConfig(BaseResourcesServerConfig):
    """`whole_words`: a reference within a longer word or number isn't found. An answer of more than `max_answer_chars`
    holds none."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    whole_words: bool = False
    max_answer_chars: int | None = Field(default=None, gt=0)


class RulerRunRequest(BaseRunRequest):
    outputs: list[str]
    length: int
    subset: str


class RulerVerifyRequest(RulerRunRequest, BaseVerifyRequest):
    pass


class SubsetRewards(BaseVerifyResponse):
    """The reward once more, under the name of the row's subset, for a mean of each."""

    cwe: float | None = None
    fwe: float | None = None
    niah_multikey_1: float | None = None
    niah_multikey_2: float | None = None
    niah_multikey_3: float | None = None
    niah_multiquery: float | None = None
    niah_multivalue: float | None = None
    niah_single_1: float | None = None
    niah_single_2: float | None = None
    niah_single_3: float | None = None
    qa_1: float | None = None
    qa_2: float | None = None
    vt: float | None = None


class RulerVerifyResponse(SubsetRewards):
    outputs: list[str]
    length: int
    subset: str


SUBSETS = tuple(name for name in SubsetRewards.model_fields if name not in BaseVerifyResponse.model_fields)


class RulerResourcesServer(SimpleResourcesServer):
    config: RulerResourcesServerConfig

    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True

    async def verify(self, body: RulerVerifyRequest) -> RulerVerifyResponse:  # type: ignore[override]
        own = dict.fromkeys(SUBSETS)
        try:
            reward = await read_apart(size_of(body.response), self.score, body)
        except RowError as error:
            return verdict(RulerVerifyResponse, body, own, **unmeasured(error))
        named = {body.subset: reward} if body.subset in SUBSETS else {}
        return verdict(RulerVerifyResponse, body, {**own, **named}, reward=reward)

    def score(self, body: RulerVerifyRequest) -> float:
        """The reward of a response. Raises RowError for a row without references, or with blank ones."""
        references = [reference.lower() for reference in body.outputs]
        if not references or not all(map(str.strip, references)):
            raise RowError("outputs must be a list of texts to find, none of them blank")
        answer = all_text(body.response).strip()
        limit = self.config.max_answer_chars
        if limit is not None and len(answer) > limit:
            return 0.0
        found = self.found(references, own_words(answer.lower(), last_user_text(body.responses_create_params.input)))
        return float(any(found)) if body.subset in ONE_IS_ENOUGH else sum(found) / len(found)

    def found(self, references: Sequence[str], answer: str) -> list[bool]:
        """Of each reference whether the answer holds it, all in lower case."""
        if self.config.whole_words:
            patterns = (rf"(?<!\w){re.escape(reference.strip())}(?!\w)" for reference in references)
            return [re.search(pattern, answer) is not None for pattern in patterns]
        return [reference in answer for reference in references]


def own_words(answer: str, prompt: str) -> str:
    """An answer in lower case without the prompt, should it repeat that from beginning to end: all references are in
    there."""
    repeated = prompt.strip().lower()
    return answer.replace(repeated, "\n") if repeated else answer


if __name__ == "__main__":
    RulerResourcesServer.run_webserver()
