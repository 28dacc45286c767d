from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from aiohttp import web

from resources_servers.finance_sec_search.app import TOOLS
from resources_servers.finance_sec_search.tests.fake_sites import ARCHIVES, FakeSites
from resources_servers.finance_sec_search.tests.serving import (
    FILING,
    JSON,
    MODEL,
    SEC,
    Session,
    offline,
    online,
    server,
)

# --- pages ------------------------------------------------------------------------------------------------------------


async def test_a_page_is_stored_under_its_key(sites: FakeSites) -> None:
    session = online(sites)
    assert await session.use("parse_html_page", url=FILING, key="sales") == (
        "Stored 32 characters of text under the key sales. Keys: sales"
    )
    again = await session.use("parse_html_page", url=FILING, key="sales")
    assert "This overwrites what was under that key." in again
    assert (await session.use("parse_html_page", url=FILING, key="two")).endswith("Keys: sales, two")


async def test_a_long_document_is_said_to_be_long(sites: FakeSites) -> None:
    sites.pages["/long"] = f"{ARCHIVES}"
    session = online(sites, large_doc_threshold_chars=10)
    assert "input_character_ranges" in await session.use("parse_html_page", url=FILING, key="k")
    assert "input_character_ranges" not in await online(sites).use("parse_html_page", url=FILING, key="k")


async def test_a_page_that_is_long_is_read_in_a_process_of_its_own(sites: FakeSites) -> None:
    sites.pages["/page"] = "<p>" + "word " * 100_000 + "</p>"
    session = online(sites, allow_private_addresses=True)
    assert "Stored 499999 characters" in await session.use("parse_html_page", url=f"{sites.url}/page", key="k")


@pytest.mark.parametrize("first", [[503], [429, 403], ["drop"], ["drop", 503]])
async def test_busy_servers_are_asked_again(sites: FakeSites, first: list[int | str]) -> None:
    path = f"{ARCHIVES}/aapl-20230930.htm"
    sites.first[path] = list(first)
    assert "Stored" in await online(sites).use("parse_html_page", url=FILING, key="k")
    assert sites.asked[path] == len(first) + 1


@pytest.mark.parametrize(
    ("first", "said", "times"), [([503] * 9, "HTTP 503", 3), ([404], "HTTP 404", 1), ([500], "HTTP 500", 1)]
)
async def test_what_can_t_be_fetched_is_told(sites: FakeSites, first: list[int | str], said: str, times: int) -> None:
    path = f"{ARCHIVES}/aapl-20230930.htm"
    sites.first[path] = list(first)
    assert said in await online(sites).use("parse_html_page", url=FILING, key="k")
    assert sites.asked[path] == times


async def test_redirects_are_followed_and_not_for_ever(sites: FakeSites) -> None:
    sites.pages["/go"] = web.Response(status=302, headers={"Location": "/page"})
    sites.pages["/loop"] = web.Response(status=302, headers={"Location": "/loop"})
    session = online(sites, allow_private_addresses=True)
    assert "Stored 7 characters" in await session.use("parse_html_page", url=f"{sites.url}/go", key="k")
    assert "more than 5 times" in await session.use("parse_html_page", url=f"{sites.url}/loop", key="k")


async def test_the_sec_is_told_who_asks(sites: FakeSites) -> None:
    await online(sites, user_agent="Me me@example.org").use("parse_html_page", url=FILING, key="k")
    assert sites.requests[0].headers["User-Agent"] == "Me me@example.org"


NO_PAGES = [
    (web.Response(body=b"%PDF-1.7 ...", content_type="application/pdf"), "application/pdf"),
    (web.Response(body=b"%PDF-1.7 ...", content_type="text/html"), "not text"),
    (web.Response(body=b"GIF\0\0", content_type="text/plain"), "not text"),
    (web.Response(body=b"x" * 2000, content_type="text/html"), "larger than 1000 bytes"),
    (
        web.Response(
            body=gzip.compress(b"x" * 50_000_000), headers={"Content-Encoding": "gzip", "Content-Type": "text/html"}
        ),
        "larger than 1000 bytes",
    ),
    (
        web.Response(body=b"no gzip at all", headers={"Content-Encoding": "gzip", "Content-Type": "text/html"}),
        "can't be fetched",
    ),
]


@pytest.mark.parametrize(("page", "said"), NO_PAGES)
async def test_what_is_no_page_is_told(sites: FakeSites, page: web.Response, said: str) -> None:
    sites.pages["/page"] = page
    session = online(sites, allow_private_addresses=True, max_page_bytes=1000)
    assert said in await session.use("parse_html_page", url=f"{sites.url}/page", key="k")


ENCODED = [
    ("naïve €".encode(), "text/html; charset=utf-8"),
    ("naïve €".encode("cp1252"), "text/html"),
    ("naïve €".encode("utf-16"), "text/html; charset=utf-16"),
    ("naïve €".encode(), "text/html; charset=martian"),
]


@pytest.mark.parametrize(("body", "content_type"), ENCODED)
async def test_pages_in_any_encoding(sites: FakeSites, body: bytes, content_type: str) -> None:
    sites.pages["/page"] = web.Response(body=body, headers={"Content-Type": content_type})
    session = online(sites, allow_private_addresses=True)
    answer = await session.use("parse_html_page", url=f"{sites.url}/page", key="k")
    assert "Stored 7 characters" in answer or "utf-16" in content_type


# --- what a model may not reach ---------------------------------------------------------------------------------------

PRIVATE = [
    "http://127.0.0.1:11000/server_instances",
    "http://localhost/",
    "http://LOCALHOST./",
    "http://[::1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://169.254.169.254/latest/meta-data/",
    "http://10.0.0.1/",
    "http://0.0.0.0/",
    "http://0x7f.1/",
]


@pytest.mark.parametrize("url", PRIVATE)
async def test_the_machine_s_own_network_is_out_of_reach(url: str) -> None:
    session = Session(server(max_retries=0))
    assert "not on the public internet" in await session.use("parse_html_page", url=url, key="k")


async def test_nor_by_a_redirect(sites: FakeSites) -> None:
    sites.pages[f"{ARCHIVES}/aapl-20230930.htm"] = web.Response(status=302, headers={"Location": f"{sites.url}/page"})
    session = online(sites)
    assert "not on the public internet" in await session.use("parse_html_page", url=FILING, key="k")
    assert not sites.asked["/page"]


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "/etc/passwd", "gopher://x/", "http://", "", "http://[x", "http://2130706433/"]
)
async def test_addresses_that_are_none(url: str) -> None:
    session = Session(server(max_retries=0))
    assert "Stored" not in await session.use("parse_html_page", url=url, key="k")


HOSTILE = [
    ("sec_filing_search", {"ticker": "../../../etc/passwd"}),
    ("sec_filing_search", {"ticker": ""}),
    ("sec_filing_search", {"ticker": "\0"}),
    ("sec_filing_search", {"ticker": "A" * 1_000_000}),
    ("sec_filing_search", {"ticker": "QZLM", "start_date": "../..", "end_date": "\0"}),
    ("sec_filing_search", {"ticker": "QZLM", "form_types": "[" * 50_000}),
    ("sec_filing_search", {"ticker": "QZLM", "form_types": ["x"] * 100_000}),
    ("edgar_search", {"search_query": '" OR 1=1 --'}),
    ("edgar_search", {"search_query": "a*b"}),
    ("edgar_search", {"search_query": "\0 \n"}),
    ("edgar_search", {"search_query": "lamps", "page": 10**18}),
    ("edgar_search", {"search_query": "lamps", "page": "9" * 4000}),
    ("edgar_search", {"search_query": "lamps", "ciks": "['1; DROP TABLE documents']"}),
    ("edgar_search", {"search_query": "lamps " * 100_000}),
    ("parse_html_page", {"url": f"{SEC}/Archives/edgar/data/1/000032019323000106/../../../../etc", "key": "k"}),
    ("parse_html_page", {"url": "https://www.sec.gov/Archives/edgar/data/1/..%2f..%2f/passwd", "key": "k"}),
    ("parse_html_page", {"url": "https://x/" + "a" * 1_000_000, "key": "k"}),
    ("parse_html_page", {"url": "https://x/", "key": ""}),
    ("parse_html_page", {"url": "https://x/", "key": "{{a}}"}),
    ("retrieve_information", {"prompt": "{{" * 100_000}),
    ("retrieve_information", {"prompt": "{{../../etc/passwd}}"}),
    ("web_search", {"search_query": "x", "number_of_results": 10**15}),
    ("no_such_tool", {}),
]  # fmt: skip


@pytest.mark.parametrize(("tool", "arguments"), HOSTILE, ids=range(len(HOSTILE)))
async def test_hostile_arguments_are_answered_with_a_text(tool: str, arguments: dict[str, Any]) -> None:
    """Field reports G, J: what a model writes never ends a rollout, nor reaches files."""
    session = offline(retrieval_model_server=MODEL, tavily_api_key="k")
    answer = await session.http.post(f"/{tool}", content=json.dumps(arguments), headers=JSON)
    assert answer.status_code == 200, answer.text
    text = answer.json()["results"]
    assert text and "root:" not in text and "Stored" not in text
    assert len(text) < 20_000


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b'"x"', b"null", b'{"ticker": 5}', b"{}", b'{"ticker": null}', b'{"ticker": "\\ud800"}']
)
async def test_arguments_of_the_wrong_shape_are_a_422(body: bytes) -> None:
    answer = await offline().http.post("/sec_filing_search", content=body, headers=JSON)
    assert answer.status_code == 422
    assert answer.json()["detail"]


@pytest.mark.parametrize("path", ["/serach", "/a/b", "/verify/x", "/sec_filing_search/"])
@pytest.mark.parametrize("body", [b"{}", b"not json"])
async def test_other_tools_are_answered_with_those_there_are(path: str, body: bytes) -> None:
    """B74"""
    answer = await offline().http.post(path, content=body, follow_redirects=False)
    assert answer.status_code == 200, answer.text
    assert json.loads(answer.json()["results"])["error"].endswith(f"The tools are: {', '.join(TOOLS)}.")
