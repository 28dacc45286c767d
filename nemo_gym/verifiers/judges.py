"""The judge of a resources server: which model is asked, how many at once, and what is kept of each call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import BaseModel, Field, SerializerFunctionWrapHandler, ValidationError, model_serializer

from nemo_gym.config.errors import ConfigError
from nemo_gym.config.roots import resolve_under_roots
from nemo_gym.schema.chat_completion import NeMoGymChatCompletion
from nemo_gym.schema.chat_request import NeMoGymChatCompletionCreateParamsNonStreaming
from nemo_gym.schema.items import NeMoGymEasyInputMessage
from nemo_gym.schema.requests import NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.schema.response import NeMoGymResponse
from nemo_gym.schema.server_refs import ModelServerRef
from nemo_gym.verifiers.judging import Issue, Position, Verdict, read_verdict
from nemo_gym.verifiers.response_text import closing_text

A = TypeVar("A", bound=BaseModel)
CallJudge = Callable[..., Awaitable[Any]]
"""`nemo_gym.judge.call_judge`."""


class JudgeSettings(BaseModel):
    """Config keys of a server that asks a judge; put it before `BaseResourcesServerConfig`."""

    judge_model_server: ModelServerRef
    judge_responses_create_params: NeMoGymResponseCreateParamsNonStreaming
    judge_endpoint_max_concurrency: int | None = Field(default=64, gt=0)
    judge_system_message: str | None = None


class JudgeEvaluation(BaseModel):
    """One call of a judge, as records keep it. `judgement_parsing_issues` is left out where there are none."""

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


class Judge:
    """Asks the judge of `settings`, over a server's client and with `nemo_gym.judge.call_judge`."""

    def __init__(self, settings: JudgeSettings, client: Any, call_judge: CallJudge) -> None:
        self._settings, self._client, self._call = settings, client, call_judge
        self.most = settings.judge_endpoint_max_concurrency
        """Calls at once; None for any number."""
        self._slots: AbstractAsyncContextManager[Any] = (
            nullcontext() if self.most is None else asyncio.Semaphore(self.most)
        )

    def request(self, prompt: str, *, system: str | None = None) -> NeMoGymResponseCreateParamsNonStreaming:
        """What is asked: the prompt as a user message, after `system` or else `judge_system_message`, if any."""
        told = self._settings.judge_system_message if system is None else system
        messages = [NeMoGymEasyInputMessage(role="user", content=prompt)]
        if told is not None:
            messages.insert(0, NeMoGymEasyInputMessage(role="system", content=told))
        return self._settings.judge_responses_create_params.model_copy(update={"input": messages})

    async def ask(self, params: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        """What the judge answers, once it is its turn. Raises JudgeError."""
        return await self._asked("/v1/responses", params, NeMoGymResponse)

    async def ask_chat(self, params: NeMoGymChatCompletionCreateParamsNonStreaming) -> NeMoGymChatCompletion:
        """The same over Chat Completions, for judges that have nothing else. Raises JudgeError."""
        return await self._asked("/v1/chat/completions", params, NeMoGymChatCompletion)

    async def _asked(self, path: str, params: BaseModel, answer: type[A]) -> A:
        async with self._slots:
            said = await self._call(
                self._client,
                server_name=self._settings.judge_model_server.name,
                url_path=path,
                json=params,
                response_model=answer,
            )
        return cast(A, said)

    async def evaluate(
        self, prompt: str, labels: Sequence[str], *, system: str | None = None, position: Position = Position.LAST
    ) -> JudgeEvaluation:
        """Ask, and read one of `labels` out of the last part of the answer's last message. Raises JudgeError."""
        params = self.request(prompt, system=system)
        response = await self.ask(params)
        said = verdict_in(response, labels, position)
        return JudgeEvaluation(
            responses_create_params=params,
            response=response,
            verdict_label=said.label,
            judgement_parsing_issues=[str(issue) for issue in said.issues],
        )


def verdict_in(response: NeMoGymResponse, labels: Sequence[str], position: Position = Position.LAST) -> Verdict:
    """What a judge's reply says, by the last part of its last item if that is a message."""
    return read_verdict(closing_text(response), labels, position=position, is_complete=is_complete(response))


def is_complete(response: NeMoGymResponse) -> bool:
    """Whether a reply wasn't cut off."""
    return response.status != "incomplete" and response.incomplete_details is None


def issues_of(evaluation: dict[str, Any], labels: Sequence[str], position: Position = Position.LAST) -> list[str]:
    """The issues of a stored evaluation, read again from the judge's reply where they weren't stored."""
    stored = evaluation.get("judgement_parsing_issues")
    if stored is not None:
        return [str(issue) for issue in stored]
    try:
        reply = NeMoGymResponse.model_validate(evaluation.get("response"))
    except ValidationError:
        return [Issue.UNPARSEABLE]
    return [str(issue) for issue in verdict_in(reply, labels, position).issues]


def template_at(key: str, path: str, folder: Path) -> str:
    """A prompt's text, stripped: of `path` in the component's `folder`, else under a search root.

    `key` is the config key that named it. Raises ConfigError.
    """
    own = folder / path
    try:
        return (own if own.exists() else resolve_under_roots(path)).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{key}: {path} can't be read ({error}); give a text file in {folder.name}/, in the project's root, or by "
            "its absolute path"
        ) from error
