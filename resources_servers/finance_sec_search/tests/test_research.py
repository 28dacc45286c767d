from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.config.errors import ConfigError
from nemo_gym.testing.responses import response
from resources_servers.finance_sec_search import app, session_documents
from resources_servers.finance_sec_search.app import RateLimiter
from resources_servers.finance_sec_search.fetching import WebClient
from resources_servers.finance_sec_search.tests.fake_sites import FakeSites
from resources_servers.finance_sec_search.tests.serving import (
    FILING,
    JSON,
    MODEL,
    SEC,
    Session,
    asked,
    offline,
    online,
    over_http,
    server,
)

# --- searches ---------------------------------------------------------------------------------------------------------


async def test_a_local_index_is_searched() -> None:
    found = await offline().read("edgar_search", search_query='"cold store" fire', form_types='["8-K"]')
    assert [(record["ticker"], record["formType"]) for record in found] == [("ZPKE", "8-K")]
    assert "parentheses" in (await offline().read("edgar_search", search_query="(a)"))["error"]
    late = offline(max_end_date="2023-02-28")
    assert {r["filedAt"] for r in await late.read("edgar_search", search_query="revenue")} == {"2023-02-21"}


async def test_sec_api_is_searched(sites: FakeSites) -> None:
    sites.pages["/full-text-search"] = {"filings": [{"cik": "1"}, {"cik": "2"}]}
    session = online(sites, edgar_search_mode="live", sec_api_key="key")
    found = await session.read("edgar_search", search_query="a", top_n_results=1, end_date="2099-01-01")
    assert [record["cik"] for record in found] == ["1"]
    assert sites.bodies[0]["endDate"] == "2025-04-07"


async def test_without_a_mode_there_is_no_search(sites: FakeSites) -> None:
    assert "not available" in (await online(sites).read("edgar_search", search_query="a"))["error"]


@pytest.mark.parametrize(("mode", "said"), [("local", "local_edgar_index_path"), ("live", "sec_api_key")])
def test_a_mode_needs_what_it_searches(mode: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        server(edgar_search_mode=mode)


WEB = {"tavily_api_key": "tvly"}
RESULTS = {"results": [{"title": "T", "url": "U", "content": "C", "score": 0.5, "raw_content": None}]}


async def test_the_web_is_searched(sites: FakeSites) -> None:
    sites.pages["/search"] = RESULTS
    found = await online(sites, **WEB).read("web_search", search_query=" x ", start_date="2024-01-01")
    assert found == [{"title": "T", "url": "U", "content": "C", "score": 0.5}]
    assert sites.requests[0].headers["Authorization"] == "Bearer tvly"
    assert sites.bodies == [
        {"query": "x", "search_depth": "fast", "chunks_per_source": 1, "max_results": 10, "start_date": "2024-01-01"}
    ]


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ({}, {"end_date": "2024-06-01"}),
        ({"end_date": "2030-01-01"}, {"end_date": "2024-06-01"}),
        ({"end_date": "2020-01-01"}, {"end_date": "2020-01-01"}),
        ({"number_of_results": 99}, {"max_results": 20}),
        ({"number_of_results": "0"}, {"max_results": 1}),
    ],
)
async def test_web_searches_keep_to_their_bounds(sites: FakeSites, arguments: dict[str, Any], sent: Any) -> None:
    sites.pages["/search"] = RESULTS
    await online(sites, max_end_date="2024-06-01", **WEB).use("web_search", search_query="x", **arguments)
    assert sent.items() <= sites.bodies[0].items()


@pytest.mark.parametrize(
    "arguments",
    [
        {"start_date": "June"},
        {"end_date": "2020-13-01"},
        {"start_date": "2025-01-01"},
        {"search_query": " "},
        {"number_of_results": "many"},
    ],
)
async def test_web_searches_that_can_t_be_made(sites: FakeSites, arguments: dict[str, Any]) -> None:
    session = online(sites, max_end_date="2024-06-01", **WEB)
    assert (await session.read("web_search", **{"search_query": "x", **arguments}))["error"]
    assert not sites.asked


@pytest.mark.parametrize(("first", "works"), [([500, "drop"], True), ([500, 500, 500], False), ([], False)])
async def test_three_tries_for_the_web(sites: FakeSites, first: list[int | str], works: bool) -> None:
    sites.first["/search"] = list(first)
    sites.pages["/search"] = RESULTS if works else {"odd": 1}
    answer = await online(sites, **WEB).read("web_search", search_query="x")
    assert isinstance(answer, list) == works
    assert sites.asked["/search"] == 3


@pytest.mark.parametrize("config", [{}, {"tavily_api_key": "k", "offline": True}])
async def test_without_a_key_the_web_is_not_searched(sites: FakeSites, config: dict[str, Any]) -> None:
    assert "not available" in (await online(sites, **config).read("web_search", search_query="x"))["error"]


# --- questions about documents ----------------------------------------------------------------------------------------


async def reading(*replies: Any, **config: Any) -> Session:
    """A session that holds `a`, ten characters long, and `b`, which looks like a placeholder."""
    session = offline(*replies, **{"retrieval_model_server": MODEL, **config})
    await session.seed()
    stored = next(iter(session.server._sessions.values()))
    stored.store("a", "0123456789")
    stored.store("b", "{{a}} {x}")
    return session


@pytest.mark.parametrize(
    ("prompt", "ranges", "sent"),
    [
        ("Sum of {{a}}?", None, "Sum of 0123456789?"),
        ("{{ a }} and {{a}} and {{b}}", [], "0123456789 and 0123456789 and {{a}} {x}"),
        ("{{a}}", [{"key": "a", "start": 2, "end": 5}], "234"),
        ("{{a}}{{b}}", '[{"key": "a", "start": "2", "end": 5.0}]', "234{{a}} {x}"),
        ("{{a}}", "[{'key': 'a', 'start': -5, 'end': 100000000000000000000}]", "0123456789"),
        ("{{a}}", {"key": "a", "start": 8, "end": 3}, ""),
        ("{{a}} {b} {{", "", "0123456789 {b} {{"),
    ],
)
async def test_documents_stand_where_the_prompt_names_them(prompt: str, ranges: Any, sent: str) -> None:
    session = await reading(response("An answer."))
    assert await session.use("retrieve_information", prompt=prompt, input_character_ranges=ranges) == "An answer."
    [body] = asked(session.server)
    assert [item["role"] for item in body["input"]] == ["system", "user"]
    assert body["input"][1]["content"] == sent


async def test_the_retrieval_model_is_asked_as_configured() -> None:
    own = {
        "retrieval_responses_create_params": {"input": [], "temperature": 0.5},
        "retrieval_system_prompt": "Be brief.",
    }
    session = await reading(response("x"), retrieval_max_output_tokens=7, **own)
    await session.use("retrieve_information", prompt="{{a}}")
    [body] = asked(session.server)
    assert (body["temperature"], body["max_output_tokens"]) == (0.5, 7)
    assert body["input"][0]["content"] == "Be brief."


@pytest.mark.parametrize(
    ("prompt", "ranges", "said"),
    [
        ("no document", None, "names no document"),
        ("{{c}}", None, "no document under the key c. Keys: a, b"),
        ("{{a}}", "what?", "must be a list of objects"),
        ("{{a}}", [{"key": "a"}], "must be a list of objects"),
        ("{{a}}", [{"key": "a", "start": "x", "end": 1}], "must be a list of objects"),
        ("{{a}}", [{"key": "a", "start": 1e999, "end": 1}], "must be a list of objects"),
        ("{{a}}", [{"key": "b", "start": 0, "end": 1}], "which the prompt doesn't name"),
    ],
)
async def test_prompts_that_can_t_be_filled(prompt: str, ranges: Any, said: str) -> None:
    session = await reading()
    body = json.dumps({"prompt": prompt, "input_character_ranges": ranges})
    answer = await session.http.post("/retrieve_information", content=body, headers=JSON)
    assert said in answer.json()["results"]


RETRIEVAL_FAILURES = [
    (over_http({"error": "full" * 500}, 503), "HTTP 503: "),
    (over_http("not json"), "can't be asked"),
    (ConnectionError("gone"), "can't be asked: ConnectionError: gone"),
    (response(incomplete_details={"reason": "max_output_tokens"}, status="incomplete"), "max_output_tokens"),
    (response(error={"code": "server_error", "message": "oh"}, status="failed"), "server_error: oh"),
    (response(status="completed"), "status completed"),
]


@pytest.mark.parametrize(("reply", "said"), RETRIEVAL_FAILURES)
async def test_a_retrieval_model_that_fails_is_told(reply: Any, said: str) -> None:
    session = await reading(reply)
    answer = await session.use("retrieve_information", prompt="{{a}}")
    assert said in answer
    assert len(answer) < 700


async def test_without_a_retrieval_model() -> None:
    session = await reading(retrieval_model_server=None)
    assert "no retrieval model is configured" in await session.use("retrieve_information", prompt="{{a}}")


async def test_a_prompt_longer_than_the_model_reads_is_not_sent() -> None:
    session = await reading(retrieval_model_context_length=12, retrieval_max_output_tokens=10)
    assert "has 10 characters" in await session.use("retrieve_information", prompt="{{a}}")
    assert not asked(session.server)


# --- sessions ---------------------------------------------------------------------------------------------------------


async def test_sessions_don_t_see_each_other(sites: FakeSites) -> None:
    one = online(sites)
    two = Session(one.server)
    await one.use("parse_html_page", url=FILING, key="k")
    assert (await two.use("parse_html_page", url=FILING, key="x")).endswith("Keys: x")
    assert (await one.use("parse_html_page", url=FILING, key="l")).endswith("Keys: k, l")
    await one.seed()
    assert (await one.use("parse_html_page", url=FILING, key="m")).endswith("Keys: m")


@pytest.mark.parametrize("bounds", [{"max_session_documents": 2}, {"max_session_chars": 70}])
async def test_a_session_keeps_only_so_much(sites: FakeSites, bounds: dict[str, Any]) -> None:
    session = online(sites, **bounds)
    for key in ("a", "b"):
        assert "Stored" in await session.use("parse_html_page", url=FILING, key=key)
    full = await session.use("parse_html_page", url=FILING, key="c")
    assert "There is no room" in full and full.endswith("Keys: a, b")
    assert "overwrites" in await session.use("parse_html_page", url=FILING, key="b")


def test_only_so_many_keys_are_shown() -> None:
    texts = {f"{number}" + "k" * 1000: "" for number in range(300)}
    shown = session_documents.shown_keys(texts)
    assert shown.endswith(" and 100 more") and len(shown) < 25_000
    assert session_documents.shown_keys({}) == "none"


async def test_when_the_time_is_over_only_submitting_works(monkeypatch: pytest.MonkeyPatch) -> None:
    session = offline(max_rollout_time_seconds=100.0)
    await session.seed()
    assert await session.read("sec_filing_search", ticker="QZLM")
    next(iter(session.server._sessions.values())).started -= 101
    for tool, arguments in (
        ("sec_filing_search", {"ticker": "QZLM"}),
        ("edgar_search", {"search_query": "a"}),
        ("parse_html_page", {"url": "x", "key": "k"}),
        ("retrieve_information", {"prompt": "{{a}}"}),
        ("web_search", {"search_query": "a"}),
    ):
        assert "call submit_final_result now" in (await session.read(tool, **arguments))["error"]
    assert (await session.read("submit_final_result", final_result="42"))["success"]


async def test_many_sessions_are_noticed_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "MANY_SESSIONS", 2)
    of = offline().server
    with caplog.at_level(logging.WARNING, "finance_sec_search"):
        for _ in range(5):
            await Session(of).seed()
    assert len([record for record in caplog.records if "More than 2 sessions" in record.message]) == 1


async def test_submitting() -> None:
    session = offline()
    assert await session.read("submit_final_result", final_result="42") == {"success": True, "result": "42"}
    assert "empty" in (await session.read("submit_final_result", final_result=" "))["error"]


# --- limits -----------------------------------------------------------------------------------------------------------


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(("rate", "times"), [(2, [0, 0, 1, 1, 2]), (0.5, [0, 2, 4, 6, 8]), (10, [0, 0, 0, 0, 0])])
async def test_no_more_requests_in_any_second(rate: float, times: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("asyncio.sleep", clock.sleep)
    limiter = RateLimiter(rate, clock=clock)
    taken = []
    for _ in range(5):
        await limiter.acquire()
        taken.append(clock.now - 100)
    assert taken == times


async def test_the_window_slides(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("asyncio.sleep", clock.sleep)
    limiter = RateLimiter(2, clock=clock)
    taken = []
    for pause in (0, 0.9, 0.2, 0):
        clock.now += pause
        await limiter.acquire()
        taken.append(round(clock.now - 100, 3))
    assert taken == [0, 0.9, 1.1, 1.9]


async def test_only_the_sec_is_asked_slowly(sites: FakeSites) -> None:
    acquired: list[str] = []

    class Counting(RateLimiter):
        async def acquire(self) -> None:
            acquired.append("slot")

    own = WebClient("agent", Counting(1), base_urls={SEC: sites.url}, allow_private=True)
    await own.get(f"{sites.url}/page")
    assert not acquired
    await own.get(FILING)
    assert acquired == ["slot"]
    await own.close()


async def test_waiting_for_a_slot_doesn_t_count_as_the_site_s_time(
    sites: FakeSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    real = asyncio.timeout

    def timeout(seconds: float | None) -> asyncio.Timeout:
        order.append("clock")
        return real(seconds)

    class Noting(RateLimiter):
        async def acquire(self) -> None:
            order.append("slot")

    monkeypatch.setattr("asyncio.timeout", timeout)
    own = WebClient("agent", Noting(1), base_urls={SEC: sites.url})
    await own.get(FILING)
    await own.close()
    assert order[:2] == ["slot", "clock"]


@pytest.fixture
def log_levels() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("finance_sec_search", "sec_local_index")]
    before = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


@pytest.mark.usefixtures("log_levels")
@pytest.mark.parametrize(("level", "number"), [("debug", logging.DEBUG), ("nonsense", logging.ERROR)])
def test_the_log_level_comes_from_the_environment(level: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    logging.getLogger("finance_sec_search").setLevel(logging.ERROR)
    monkeypatch.setenv("NEMO_GYM_LOG_LEVEL", level)
    server()
    assert logging.getLogger("finance_sec_search").level == number


@pytest.mark.parametrize("key", ["judge_prompt_template", "retrieval_system_prompt"])
def test_prompts_come_from_files(key: str, tmp_path: Path) -> None:
    file = tmp_path / "prompt.yaml"
    file.write_text(f"{key}: |\n  Own words.\n")
    of = server(**{f"{key}_fpath": str(file)})
    assert "Own words." in (of._judge_template, of._retrieval_system_prompt)
    for content in ("other: x", "- a", "{", f"{key}: 5"):
        file.write_text(content)
        with pytest.raises(ConfigError, match=f"{key}_fpath"):
            server(**{f"{key}_fpath": str(file)})
    assert "Mine." in {server(**{key: "Mine."})._judge_template, server(**{key: "Mine."})._retrieval_system_prompt}
