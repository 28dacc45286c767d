"""Asking the reward model about pairs of responses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import aiohttp

from nemo_gym.judge import JudgeError, call_judge
from nemo_gym.openai_utils import NeMoGymEasyInputMessage, NeMoGymResponse
from nemo_gym.verifiers.response_text import all_text
from resources_servers.genrm_compare.aggregation import Comparison, aggregate_scores
from resources_servers.genrm_compare.conversations import Turn, extract_output_text
from resources_servers.genrm_compare.settings import GenRMCompareConfig
from resources_servers.genrm_compare.verdicts import (
    GenRMOutputParseError,
    Scores,
    generate_comparison_pairs,
    parse_genrm_output,
)

_BUSY = frozenset({408, 429})


class Comparer:
    """Compares the responses of a group, over a server's client."""

    def __init__(self, config: GenRMCompareConfig, client: Any) -> None:
        self._config, self._client = config, client

    async def compare(
        self, history: Sequence[Turn], responses: Sequence[Any], principle: str | None
    ) -> tuple[list[float], list[Comparison], dict[str, float]]:
        """The score of each response, the comparisons it comes from, and their metrics. Raises JudgeError.

        All pairs are asked about at once; when one can't be, nobody waits for the others.
        """
        config = self._config
        if len(responses) < 2:
            return [config.default_score] * len(responses), [], {}
        answers = [extract_output_text(response) for response in responses]
        pairs = generate_comparison_pairs(config.comparison_strategy, len(responses))
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._comparison(history, answers, pair, judge, principle))
                    for pair in pairs
                    for judge in range(config.num_judges_per_comparison)
                ]
        except BaseExceptionGroup as failures:
            raise _first(failures) from failures
        comparisons = [task.result() for task in tasks]
        scores, metrics = aggregate_scores(
            comparisons,
            responses,
            default_score=config.default_score,
            aggregator_method=config.aggregator_method,
            adjustments=config.adjustments(),
        )
        return scores, comparisons, metrics

    async def _comparison(
        self, history: Sequence[Turn], answers: Sequence[str], pair: tuple[int, int], judge: int, principle: str | None
    ) -> Comparison:
        first, second = pair
        metadata = {"response_1": answers[first], "response_2": answers[second]}
        if principle is not None:
            metadata["principle"] = principle
        try:
            said = await self._scores(history, metadata)
        except JudgeError as error:
            raise JudgeError(f"responses {first} and {second}, judge {judge}: {error}") from error
        return Comparison(response_i=first, response_j=second, judge_idx=judge, **said._asdict())

    async def _scores(self, history: Sequence[Turn], metadata: dict[str, str]) -> Scores:
        """Ask until there are scores, as often as is allowed. Raises JudgeError where none of the tries was answered,
        and at once for what another try wouldn't change."""
        config, problem, was_answered = self._config, JudgeError("it was not asked"), False
        for attempt in range(config.genrm_parse_retries + 1):
            if attempt:
                await asyncio.sleep(config.genrm_parse_retry_sleep_s)
            try:
                text = all_text(await self._ask(history, metadata))
                was_answered = True
                return await asyncio.to_thread(
                    parse_genrm_output, text, config.default_score, config.default_ranking, raise_on_fail=True
                )
            except JudgeError as error:
                problem = error
                if not _may_pass(error.__cause__):
                    raise
            except GenRMOutputParseError as error:
                problem = JudgeError(str(error))
        if was_answered and not config.fail_on_unparsable:
            return Scores(config.default_score, config.default_score, config.default_ranking)
        raise problem

    async def _ask(self, history: Sequence[Turn], metadata: dict[str, str]) -> NeMoGymResponse:
        """Raises JudgeError, from what went wrong."""
        messages = [NeMoGymEasyInputMessage(role=turn["role"], content=turn["content"]) for turn in history]
        params = self._config.genrm_responses_create_params.model_copy(update={"input": messages, "metadata": metadata})
        try:
            async with asyncio.timeout(self._config.judge_request_timeout_s):
                return await call_judge(
                    self._client,
                    server_name=self._config.genrm_model_server.name,
                    url_path="/v1/responses",
                    json=params,
                    response_model=NeMoGymResponse,
                )
        except TimeoutError as error:
            raise JudgeError(f"no answer within {self._config.judge_request_timeout_s:g} s") from error


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """That of the judge, where one of them is."""
    return next((each for each in failures.exceptions if isinstance(each, JudgeError)), failures.exceptions[0])


def _may_pass(cause: BaseException | None) -> bool:
    """Whether another try could go better: the way there failed, or the server was busy or failed itself."""
    status = getattr(cause, "status", None)
    if isinstance(status, int):
        return status in _BUSY or status >= 500
    return isinstance(cause, aiohttp.ClientError | OSError | TimeoutError)
