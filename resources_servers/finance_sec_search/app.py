"""Questions about companies, to be answered from their filings with the SEC: the reward is a judge's rating."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, ClassVar

from fastapi import FastAPI, Request
from pydantic import PrivateAttr

from nemo_gym.base_resources_server import (
    BaseRunRequest,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ResourcesSeedSessionRequest,
    ResourcesSeedSessionResponse,
    SessionStore,
    SimpleResourcesServer,
)
from nemo_gym.judge import call_judge, reraise_judge_errors
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import SESSION_ID_KEY
from nemo_gym.verifiers.blame import ORDINARY, verdict_of_judge
from nemo_gym.verifiers.judges import Judge, JudgeSettings
from nemo_gym.verifiers.response_text import last_user_text
from nemo_gym.verifiers.verdicts import verdict
from resources_servers.finance_sec_search.company_tickers import TickerTable, TickerTableError, read_overlay
from resources_servers.finance_sec_search.documents import DocumentTexts
from resources_servers.finance_sec_search.fetching import FetchError, RateLimiter, WebClient
from resources_servers.finance_sec_search.filings import FilingsStore, as_result, matching
from resources_servers.finance_sec_search.grading import (
    SUBMIT,
    Grade,
    judge_prompt,
    judged,
    refusal,
    submitted_answer,
    unjudged,
)
from resources_servers.finance_sec_search.grading import rating_of as _extract_judge_rating
from resources_servers.finance_sec_search.retrieval import RetrievalError, answer_in, filled_prompt, fits, request_of
from resources_servers.finance_sec_search.session_documents import SessionDocuments, StorageFullError, shown_keys
from resources_servers.finance_sec_search.settings import (
    FinanceAgentResourcesServerConfig,
    cache_folder,
    file_at,
    prompt_at,
)
from resources_servers.finance_sec_search.sources import edgar_search_service, local_index, web_client
from resources_servers.finance_sec_search.tool_arguments import (
    EdgarSearchRequest,
    FinanceAgentSearchRequest,
    ParseHtmlPageRequest,
    RetrieveInformationRequest,
    SubmitFinalResultRequest,
    ToolAnswer,
    WebSearchRequest,
)
from resources_servers.finance_sec_search.web_search import WebSearch
from resources_servers.sec_local_index.edgar_search_service import (
    EdgarArgumentError,
    EdgarSearchService,
    string_list,
)

__all__ = [
    "EdgarSearchRequest",
    "FinanceAgentResourcesServer",
    "FinanceAgentResourcesServerConfig",
    "FinanceAgentSearchRequest",
    "FinanceAgentVerifyRequest",
    "RateLimiter",
    "RetrieveInformationRequest",
    "_extract_judge_rating",
]

TOOLS = ("sec_filing_search", "edgar_search", "parse_html_page", "retrieve_information", "web_search", SUBMIT)
MANY_SESSIONS = 128
LOG = logging.getLogger("finance_sec_search")


class FinanceAgentSeedSessionRequest(BaseSeedSessionRequest):
    """`responses_create_params` says which tools the row offers."""

    responses_create_params: dict[str, Any] | None = None


class FinanceAgentRunRequest(BaseRunRequest):
    question: str
    expected_answer: str


class FinanceAgentVerifyRequest(FinanceAgentRunRequest, BaseVerifyRequest):
    pass


class FinanceAgentVerifyResponse(FinanceAgentVerifyRequest, BaseVerifyResponse):
    """`judge_rating` is 0, 1 or 2, null where there is none; `judge_text` is what the judge said, or why it wasn't
    asked."""

    judge_rating: int | None = None
    judge_text: str | None = None


class FinanceAgentResourcesServer(SimpleResourcesServer):
    config: FinanceAgentResourcesServerConfig

    ray_enabled: ClassVar[bool | None] = False
    # One process, so that the SEC's limit of requests a second is kept.
    shareable: ClassVar[bool] = False

    _sessions: SessionStore[SessionDocuments] = PrivateAttr(default_factory=SessionStore)
    _web: WebClient = PrivateAttr()
    _tickers: TickerTable = PrivateAttr()
    _filings: FilingsStore = PrivateAttr()
    _documents: DocumentTexts = PrivateAttr()
    _edgar: EdgarSearchService | None = PrivateAttr(default=None)
    _judge_template: str = PrivateAttr(default="")
    _retrieval_system_prompt: str = PrivateAttr(default="")

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        config = self.config
        _set_log_level()
        self._web = web_client(config)
        cache = cache_folder(config.cache_dir) if config.use_cache else None
        overlay = config.supplementary_tickers_fpath
        self._tickers = TickerTable(self._web, cache=cache, overlay=read_overlay(file_at(overlay)) if overlay else None)
        self._filings = FilingsStore(self._web, cache=cache)
        index = local_index(config)
        dump = file_at(config.sec_dump_path) if config.sec_dump_path else None
        self._documents = DocumentTexts(self._web, cache=cache, dump=dump, index=index)
        self._edgar = edgar_search_service(config, index)
        self._judge_template = config.judge_prompt_template or prompt_at(
            config.judge_prompt_template_fpath, "judge_prompt_template"
        )
        self._retrieval_system_prompt = config.retrieval_system_prompt or prompt_at(
            config.retrieval_system_prompt_fpath, "retrieval_system_prompt"
        )

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        for tool in (
            self.sec_filing_search,
            self.edgar_search,
            self.parse_html_page,
            self.retrieve_information,
            self.web_search,
            self.submit_final_result,
        ):
            app.post(f"/{tool.__name__}")(tool)
        app.post("/{tool:path}")(self.unknown_tool)
        serving = app.router.lifespan_context

        @asynccontextmanager
        async def closing_web(app: FastAPI) -> AsyncIterator[Any]:
            async with serving(app) as state:
                yield state
            await self._web.close()

        app.router.lifespan_context = closing_web
        return app

    async def seed_session(  # type: ignore[override]
        self, request: Request, body: ResourcesSeedSessionRequest | FinanceAgentSeedSessionRequest
    ) -> ResourcesSeedSessionResponse | BaseSeedSessionResponse:
        """Begin with no documents. TickerTableError when the row's tools need the table, and it can't be had."""
        if isinstance(body, FinanceAgentSeedSessionRequest) and _offers(body, "sec_filing_search"):
            await self._tickers.get()
        self._sessions[request.session[SESSION_ID_KEY]] = self._new_session()
        if len(self._sessions) == MANY_SESSIONS + 1:
            LOG.warning("More than %d sessions are open, each with its documents in memory.", MANY_SESSIONS)
        return await super().seed_session(body)

    # --- tools --------------------------------------------------------------------------------------------------------

    async def sec_filing_search(self, request: Request, body: FinanceAgentSearchRequest) -> ToolAnswer:
        """List the filings of a company, newest first."""
        return await self._in_time(request, lambda _: self._filings_found(body))

    async def edgar_search(self, request: Request, body: EdgarSearchRequest) -> ToolAnswer:
        """Search the text of filings."""

        async def found(_: SessionDocuments) -> str:
            if self._edgar is None:
                return _error("edgar_search is not available here; use another tool.")
            return await self._edgar.search(**dict(body))

        return await self._in_time(request, found)

    async def parse_html_page(self, request: Request, body: ParseHtmlPageRequest) -> ToolAnswer:
        """Fetch a page and store its text under a key."""
        return await self._in_time(request, lambda session: self._stored(session, body.url, body.key.strip()))

    async def retrieve_information(self, request: Request, body: RetrieveInformationRequest) -> ToolAnswer:
        """Have a model answer a question about stored documents."""
        return await self._in_time(request, lambda session: self._retrieved(session, body))

    async def web_search(self, request: Request, body: WebSearchRequest) -> ToolAnswer:
        """Search the web."""

        async def found(_: SessionDocuments) -> str:
            config = self.config
            if not config.tavily_api_key or config.offline:
                return _error("web_search is not available here; use another tool.")
            search = WebSearch(
                config.tavily_api_key, config.tavily_base_url, config.request_timeout, config.max_end_date
            )
            return await search.search(body.search_query, body.start_date, body.end_date, body.number_of_results)

        return await self._in_time(request, found)

    async def submit_final_result(self, body: SubmitFinalResultRequest) -> ToolAnswer:
        """Submit the answer to the question, which ends the task."""
        if not body.final_result.strip():
            return ToolAnswer.of(_error("final_result is empty: submit the answer to the question."))
        return ToolAnswer.of(json.dumps({"success": True, "result": body.final_result}))

    async def unknown_tool(self, tool: str) -> ToolAnswer:
        """There is no such tool."""
        return ToolAnswer.of(_error(f"There is no tool {tool[:100]!r}. The tools are: {', '.join(TOOLS)}."))

    async def _filings_found(self, body: FinanceAgentSearchRequest) -> str:
        try:
            form_types = [form.upper() for form in string_list(body.form_types, "form_types")]
            company = await self._tickers.find(body.ticker)
            if company is None:
                return _error(
                    f"There is no company with the ticker {body.ticker.strip()[:40]!r}.",
                    suggestion="Check the spelling, or try the ticker of the parent company.",
                )
            filings = await self._filings.of(company.padded_cik)
        except (EdgarArgumentError, TickerTableError, FetchError) as error:
            return _error(str(error))
        found = matching(filings, form_types, body.start_date, body.end_date)[: self.config.max_filing_results]
        if not found:
            return _error(
                f"{company.name} has no filings like that.",
                suggestion="Ask for other forms, for more days, or for all filings.",
            )
        return json.dumps([as_result(company, filing) for filing in found], indent=2)

    async def _stored(self, session: SessionDocuments, url: str, key: str) -> str:
        if not key or "{" in key or "}" in key:
            return "The key must be a text without braces that isn't empty."
        try:
            text = await self._documents.of(url)
            was_there = session.store(key, text)
        except (FetchError, StorageFullError) as error:
            return str(error)
        said = [f"Stored {len(text)} characters of text under the key {key[:100]}."]
        if not text:
            said.append("The page has no text.")
        if was_there:
            said.append("This overwrites what was under that key.")
        if len(text) > self.config.large_doc_threshold_chars:
            said.append("The document is long: ask about parts of it, with input_character_ranges.")
        return " ".join([*said, f"Keys: {shown_keys(session.texts)}"])

    async def _retrieved(self, session: SessionDocuments, body: RetrieveInformationRequest) -> str:
        config = self.config
        if config.retrieval_model_server is None:
            return "retrieve_information is not available: no retrieval model is configured."
        output_tokens = config.retrieval_max_output_tokens
        try:
            prompt = filled_prompt(body.prompt, session.texts, body.input_character_ranges)
            fits(prompt, context_tokens=config.retrieval_model_context_length, output_tokens=output_tokens)
            params = request_of(
                prompt,
                config.retrieval_responses_create_params,
                system_prompt=self._retrieval_system_prompt,
                output_tokens=output_tokens,
            )
            return await self._asked(config.retrieval_model_server.name, params)
        except RetrievalError as error:
            return str(error)
        except Exception as error:
            LOG.warning("The retrieval model can't be asked: %r", error)
            return f"The retrieval model can't be asked: {type(error).__name__}: {str(error)[:500]}"

    async def _asked(self, model: str, params: NeMoGymResponseCreateParamsNonStreaming) -> str:
        answer = await self.server_client.post(server_name=model, url_path="/v1/responses", json=params)
        content = await answer.read()
        if not 200 <= answer.status < 300:
            text = content[:2_000].decode(errors="replace")[:500]
            raise RetrievalError(f"The retrieval model answered HTTP {answer.status}: {text}")
        return answer_in(NeMoGymResponse.model_validate_json(content))

    async def _in_time(self, request: Request, use: Callable[[SessionDocuments], Awaitable[str]]) -> ToolAnswer:
        """What a tool answers, unless the rollout's time is over."""
        session_id = request.session[SESSION_ID_KEY]
        session = self._sessions.get(session_id)
        if session is None:
            session = self._sessions[session_id] = self._new_session()
        limit = self.config.max_rollout_time_seconds
        if limit is not None and session.age > limit:
            return ToolAnswer.of(_error(f"The time for this task is over: call {SUBMIT} now with what you know."))
        return ToolAnswer.of(await use(session))

    def _new_session(self) -> SessionDocuments:
        return SessionDocuments(self.config.max_session_documents, self.config.max_session_chars)

    # --- verification -------------------------------------------------------------------------------------------------

    async def verify(  # type: ignore[override]
        self, request: Request, body: FinanceAgentVerifyRequest
    ) -> FinanceAgentVerifyResponse:
        """The reward of the submitted answer. Raises JudgeError when the judge can't be asked."""
        try:
            own = await self._own(body)
        finally:
            self._sessions.close(request.session.get(SESSION_ID_KEY, ""))
        return verdict(FinanceAgentVerifyResponse, body, own)

    async def _own(self, body: FinanceAgentVerifyRequest) -> dict[str, Any]:
        answer = submitted_answer(body.response)
        if (refused := refusal(answer)) is not None:
            return refused.as_fields()
        assert answer is not None

        async def graded() -> dict[str, Any]:
            return (await self._grade(body, answer)).as_fields()

        return await verdict_of_judge(graded, partial(self._grade, body, ORDINARY))

    async def _grade(self, body: FinanceAgentVerifyRequest, answer: str) -> Grade:
        """Raises JudgeError."""
        settings = _judge_settings(self.config)
        if settings is None:
            return unjudged(answer, body.expected_answer)
        question = last_user_text(body.responses_create_params.input) or body.question
        prompt = judge_prompt(
            self._judge_template, question, body.expected_answer, answer, delimit=self.config.delimit_answers
        )
        judge = Judge(settings, self.server_client, call_judge)
        params = judge.request(prompt)

        async def ask() -> NeMoGymResponse:
            return await reraise_judge_errors(asyncio.wait_for(judge.ask(params), self.config.judge_call_timeout))

        return await judged(ask, self.config.reward_mode, need_rating=self.config.mask_without_verdict)


def _error(text: str, **more: str) -> str:
    return json.dumps({"error": text, **more})


def _offers(body: FinanceAgentSeedSessionRequest, tool: str) -> bool:
    tools = (body.responses_create_params or {}).get("tools")
    return isinstance(tools, list) and any(isinstance(each, dict) and each.get("name") == tool for each in tools)


def _judge_settings(config: FinanceAgentResourcesServerConfig) -> JudgeSettings | None:
    if config.judge_model_server is None:
        return None
    params = config.judge_responses_create_params or NeMoGymResponseCreateParamsNonStreaming(input=[])
    return JudgeSettings(
        judge_model_server=config.judge_model_server,
        judge_responses_create_params=params,
        judge_endpoint_max_concurrency=None,
    )


def _set_log_level() -> None:
    level = os.environ.get("NEMO_GYM_LOG_LEVEL", "").strip().upper()
    if level in logging.getLevelNamesMapping():
        for name in ("finance_sec_search", "sec_local_index"):
            logging.getLogger(name).setLevel(level)


if __name__ == "__main__":
    FinanceAgentResourcesServer.run_webserver()
