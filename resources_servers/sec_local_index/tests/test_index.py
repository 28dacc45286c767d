from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from resources_servers.sec_local_index import index_files, live_edgar_search, local_edgar_search
from resources_servers.sec_local_index.edgar_search_service import (
    DEFAULT_CUTOFF,
    EdgarArgumentError,
    EdgarRequest,
    EdgarSearchError,
    EdgarSearchService,
    coerce_stringified_collection,
    string_list,
)
from resources_servers.sec_local_index.html_text import html_to_text
from resources_servers.sec_local_index.index_files import LocalIndexError
from resources_servers.sec_local_index.live_edgar_search import LiveEdgarSearch, build_payload, select_filings
from resources_servers.sec_local_index.local_edgar_search import (
    LocalEdgarSearch,
    OutOfCoverageError,
    canonical_url_key,
    default_sidecar_path,
    normalize_request,
    translate_query,
)
from resources_servers.sec_local_index.scripts.build_local_edgar_metadata import build, main
from resources_servers.sec_local_index.sec_urls import SecArchivesUrl, parse_sec_archives_url
from resources_servers.sec_local_index.tests.index_fixtures import build_index, build_varied_index, document

# --- text of pages ----------------------------------------------------------------------------------------------------

PAGES = [
    ("<p>one</p><p>two</p>", "one\ntwo"),
    ("<p>one <b>bold</b> word</p>", "one bold word"),
    ("a<br>b<br/>c", "a\nb\nc"),
    ("<table><tr><td>Revenue</td><td>1</td><td>2</td></tr><tr><td>Cost</td><td>3</td></tr></table>",
     "Revenue 1 2\nCost 3"),
    ("  <p>   padded   twice  </p>\n\n\n<p> </p>", "padded\ntwice"),
    ("<script>var x = '<p>no</p>';</script>yes", "yes"),
    ("<SCRIPT type='a>b'>no</ScRiPt >yes<style>p{}</style>!", "yes!"),
    ("<script src='x'/>kept", "kept"),
    ("<scripted>kept</scripted>", "kept"),
    ("a<!-- <p>no</p> -->b", "ab"),
    ("<!DOCTYPE html><?xml version='1'?>a", "a"),
    ("5 &lt; 6 &amp; 7 &#8364; &nbsp;x", "5 < 6 & 7 € \xa0x"),
    ("3 < 4 and 5 > 4", "3 < 4 and 5 > 4"),
    ('<a title="a > b">link</a>', "link"),
    ('<a title="open>link</a>', "link"),
    ("&lt;b&gt;", "<b>"),
    ("text only", "text only"),
    ("a <b", "a"),
    ("a<script>rest", "a"),
    ("a<!-- rest", "a"),
    ("", ""),
]  # fmt: skip


@pytest.mark.parametrize(("page", "text"), PAGES)
def test_what_a_page_says(page: str, text: str) -> None:
    assert html_to_text(page) == text


@pytest.mark.parametrize(
    "unit", ["<div>", "<a '", '<a "', "<!--", "<![", "<script>", "</script", "<", "<b x=\"'", "&#", "&amp", "<td>  "]
)
def test_no_page_takes_longer_than_its_length(unit: str) -> None:
    """A quadratic reader would need hours for these."""
    html_to_text(unit * (2_000_000 // len(unit)))
    html_to_text(unit * (1_000_000 // len(unit)) + "'\"-->")


# --- addresses --------------------------------------------------------------------------------------------------------

FOLDER = "https://www.sec.gov/Archives/edgar/data"
ADDRESSES = [
    (f"{FOLDER}/320193/000032019323000106/aapl.htm", "320193:000032019323000106:aapl.htm"),
    (f"{FOLDER}/0000320193/0000320193-23-000106/AAPL.HTM", "320193:000032019323000106:aapl.htm"),
    (f" {FOLDER}/320193/000032019323000106/aapl.htm?x=1#part ", "320193:000032019323000106:aapl.htm"),
    ("http://sec.gov/Archives/edgar/data/1/000032019323000106/a_b-c.1.xml", "1:000032019323000106:a_b-c.1.xml"),
    ("https://www.sec.gov/ix?doc=/Archives/edgar/data/1/000032019323000106/a.htm", "1:000032019323000106:a.htm"),
    (f"{FOLDER}/1/0000320193-23-000106.txt", "1:000032019323000106:0000320193-23-000106.txt"),
    (f"{FOLDER}/1/000032019323000106/", None),
    (f"{FOLDER}/1/000032019323000106/../../../x", None),
    (f"{FOLDER}/1/000032019323000106/%2e%2e%2fpasswd", None),
    (f"{FOLDER}/1/000032019323000106/..", None),
    (f"{FOLDER}/1/123/a.htm", None),
    (f"{FOLDER}/x/000032019323000106/a.htm", None),
    (f"{FOLDER}/1/000032019323000106/a\0.htm", None),
    ("https://www.sec.gov.evil.org/Archives/edgar/data/1/000032019323000106/a.htm", None),
    ("ftp://www.sec.gov/Archives/edgar/data/1/000032019323000106/a.htm", None),
    ("https://www.sec.gov/cgi-bin/browse-edgar", None),
    ("http://[broken", None),
    ("", None),
]


@pytest.mark.parametrize(("url", "key"), ADDRESSES)
def test_documents_of_the_archives_have_one_key(url: str, key: str | None) -> None:
    assert canonical_url_key(url) == key


def test_parts_of_an_address() -> None:
    parsed = parse_sec_archives_url(f"{FOLDER}/320193/0000320193-23-000106/Aapl.htm")
    assert parsed == SecArchivesUrl("320193", "000032019323000106", "Aapl.htm")
    assert (parsed.padded_cik, parsed.dashed_accession) == ("0000320193", "0000320193-23-000106")
    assert parsed.url == f"{FOLDER}/320193/000032019323000106/Aapl.htm"


# --- the query language -----------------------------------------------------------------------------------------------

QUERIES = [
    ("income", '("income")'),
    ("net income", '("net" AND "income")'),
    ('"net income" ships', '("net income" AND "ships")'),
    ("net OR ships", '("net") OR ("ships")'),
    ("income -ships", '(("income") NOT ("ships"))'),
    ("income NOT ships", '(("income") NOT ("ships"))'),
    ('-"a b" income NOT ships', '(("income") NOT ("a b" OR "ships"))'),
    ("reven*", '("reven"*)'),
    ("10-K", '("10-K")'),
    ("or and not", '("or" AND "and" AND "not")'),
]


@pytest.mark.parametrize(("query", "expression"), QUERIES)
def test_queries(query: str, expression: str) -> None:
    assert translate_query(query) == expression


@pytest.mark.parametrize(
    "query",
    ["", "(a b)", "a AND b", "re*nue", "*", "$$$", '"open', '""', "-a", "a OR -b", "a OR", "OR a", "a NOT", "NOT NOT a",
     "a NOT OR b", "x " * 65],
)  # fmt: skip
def test_queries_that_say_nothing(query: str) -> None:
    with pytest.raises(EdgarArgumentError):
        translate_query(query)


# --- a local index ----------------------------------------------------------------------------------------------------


@pytest.fixture
def index(tmp_path: Path) -> Path:
    return build_index(tmp_path / "index #1?.sqlite")


def found(search: LocalEdgarSearch, query: str, **fields: Any) -> list[str]:
    return [record["ticker"] for record in search.find(normalize_request(query, **fields))]


@pytest.mark.parametrize(
    ("query", "fields", "tickers"),
    [
        ("revenue", {}, {"T1", "T2"}),
        ("revenue -auditor", {}, {"T1"}),
        ("reven*", {}, {"T1", "T2", "T3"}),
        ('"net income"', {}, {"T1"}),
        ("leasing OR auditor", {}, {"T2", "T3"}),
        ("revenue", {"form_types": ["8-k"]}, {"T2"}),
        ("revenue", {"form_types": "['10-K', '8-K']"}, {"T1", "T2"}),
        ("revenue", {"ciks": ["0000001002"]}, {"T2"}),
        ("revenue", {"ciks": "CIK1001, 1002"}, {"T1", "T2"}),
        ("reven*", {"start_date": "2023-03-02"}, {"T2", "T3"}),
        ("reven*", {"end_date": "2023-03-02"}, {"T1", "T2"}),
        ("reven*", {"page": 2}, set()),
        ("nothing", {}, set()),
    ],
)
def test_searches(index: Path, query: str, fields: dict[str, Any], tickers: set[str]) -> None:
    assert set(found(LocalEdgarSearch(index), query, **fields)) == tickers


def test_a_record_has_the_keys_of_the_live_search(index: Path) -> None:
    [record] = LocalEdgarSearch(index).find(normalize_request("auditor"))
    assert tuple(record) == live_edgar_search.RECORD_KEYS
    assert record["filingUrl"].endswith("/1002/000000100223000002/doc2.htm")
    assert (record["formType"], record["filedAt"], record["cik"]) == ("8-K", "2023-03-02", "0000001002")


def test_pages_hold_a_hundred_and_repeat_nothing(tmp_path: Path) -> None:
    search = LocalEdgarSearch(build_varied_index(tmp_path / "index"))
    pages = [[r["accessionNo"] for r in search.find(normalize_request("common", page=n))] for n in (1, 2, 3, 4)]
    assert [len(page) for page in pages] == [100, 100, 50, 0]
    assert len({number for page in pages for number in page}) == 250


def test_the_index_is_only_read(index: Path) -> None:
    index.chmod(0o444)
    index.parent.chmod(0o555)
    before = index.read_bytes()
    try:
        assert found(LocalEdgarSearch(index), "auditor") == ["T2"]
    finally:
        index.parent.chmod(0o755)
    assert [file.name for file in index.parent.iterdir()] == [index.name]
    assert index.read_bytes() == before


def test_days_that_the_index_doesn_t_hold(index: Path) -> None:
    search = LocalEdgarSearch(index)
    assert search.coverage == ("2023-03-01", "2023-03-03")
    for days in ({"end_date": "2023-02-28"}, {"start_date": "2023-03-04"}):
        with pytest.raises(OutOfCoverageError, match="from 2023-03-01 to 2023-03-03"):
            search.find(normalize_request("revenue", **days))


def test_where_the_dump_has_a_document(index: Path) -> None:
    search = LocalEdgarSearch(index)
    assert search.source_path(SecArchivesUrl("1001", "000000100123000001", "DOC1.htm")) == "a/doc1.htm"
    assert search.source_path(SecArchivesUrl("1001", "000000100123000001", "doc2.htm")) is None
    assert search.source_path(SecArchivesUrl("1002", "000000100223000002", "doc2.htm")) is None


def test_every_thread_has_a_connection_of_its_own(index: Path) -> None:
    build(index)
    search = LocalEdgarSearch(index)
    answers: list[list[str]] = []
    threads = [threading.Thread(target=lambda: answers.append(found(search, "auditor"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [["T2"]] * 4
    search.close()
    assert found(search, "auditor") == ["T2"]


def test_a_search_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_edgar_search, "_STEPS_BETWEEN_LOOKS", 1)
    search = LocalEdgarSearch(build_varied_index(tmp_path / "index"), seconds=-1)
    with pytest.raises(EdgarSearchError, match="took more than"):
        search.find(normalize_request("common"))


def test_searches_are_noted_when_wanted(index: Path, tmp_path: Path) -> None:
    search = LocalEdgarSearch(index, metrics_dir=tmp_path / "a" / "b")
    found(search, "auditor")
    found(search, "nothing")
    [file] = (tmp_path / "a" / "b").iterdir()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["query"], line["results"]) for line in lines] == [("auditor", 1), ("nothing", 0)]
    assert all(line["seconds"] >= 0 for line in lines)


# --- its metadata -----------------------------------------------------------------------------------------------------


def test_metadata_beside_the_index_is_what_is_searched(index: Path) -> None:
    sidecar = build(index)
    assert sidecar == default_sidecar_path(index)
    with sqlite3.connect(sidecar) as connection:
        connection.execute("UPDATE documents_meta SET ticker = 'ASIDE' WHERE id = 2")
    assert found(LocalEdgarSearch(index), "auditor") == ["ASIDE"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE index_facts SET value = '2' WHERE name = 'schema_version'", "schema version is 2, not 1"),
        ("UPDATE index_facts SET value = '4' WHERE name = 'document_count'", "document count is 4, not 3"),
        ("DELETE FROM documents_meta WHERE id = 1", "rows is 2, not 3"),
        ("UPDATE index_facts SET value = 'x' WHERE name = 'fingerprint'", "fingerprint is x"),
        ("DROP TABLE index_facts", "no metadata of an index"),
    ],
)
def test_metadata_that_is_not_of_this_index_is_refused(index: Path, change: str, said: str) -> None:
    with sqlite3.connect(build(index)) as connection:
        connection.execute(change)
    with pytest.raises(LocalIndexError, match=said):
        LocalEdgarSearch(index)


def test_metadata_of_an_older_index_is_refused(index: Path, tmp_path: Path) -> None:
    old = build(index, tmp_path / "old.metadata")
    build_index(index, [document(1, "a"), document(2, "b"), document(3, "c")])
    with pytest.raises(LocalIndexError, match="fingerprint"):
        LocalEdgarSearch(index, metadata_path=old)
    assert found(LocalEdgarSearch(index, metadata_path=build(index, old)), "b") == ["T2"]


def test_a_large_index_needs_metadata(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_edgar_search, "MAX_BYTES_WITHOUT_SIDECAR", 1000)
    with pytest.raises(LocalIndexError, match="larger than 1 GiB"):
        LocalEdgarSearch(index)
    build(index)
    LocalEdgarSearch(index)


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "no index at"), (b"", "no index of filings"), (b"x" * 5000, "can't be read as an SQLite")],
)
def test_files_that_are_no_index(tmp_path: Path, content: bytes | None, said: str) -> None:
    file = tmp_path / "index"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(LocalIndexError, match=said):
        LocalEdgarSearch(file)


def test_an_index_without_documents_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LocalIndexError, match="holds no documents"):
        LocalEdgarSearch(build_index(tmp_path / "index", []))


def test_the_script_says_where_it_wrote(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(index)]) == 0
    assert capsys.readouterr().out.strip() == str(default_sidecar_path(index))
    assert main([str(index.with_name("nowhere"))]) == 1
    assert capsys.readouterr().err.startswith("Error: there is no index at")


def test_a_fingerprint_sees_the_middle_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"a" * 1_000_000)
    before = index_files.fingerprint(file)
    file.write_bytes(b"a" * 500_000 + b"b" + b"a" * 499_999)
    assert index_files.fingerprint(file) != before


# --- arguments as models write them -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        (None, None),
        (["a"], ["a"]),
        ('["a", "b"]', ["a", "b"]),
        ("['a', 'b']", ["a", "b"]),
        ("('a', 1)", ["a", 1]),
        ('{"key": 1}', {"key": 1}),
        ("{'key': 1}", {"key": 1}),
        ("10-K", "10-K"),
        ("[broken", "[broken"),
        ("[" * 10_000, "[" * 10_000),
        ("[__import__('os')]", "[__import__('os')]"),
        (7, 7),
    ],
)
def test_lists_that_arrive_as_text(value: Any, meant: Any) -> None:
    assert coerce_stringified_collection(value) == meant


@pytest.mark.parametrize(
    ("value", "texts"), [(None, []), ("10-K, 8-K", ["10-K", "8-K"]), ([" a ", ""], ["a"]), (5, ["5"]), ("[5]", ["5"])]
)
def test_lists_of_texts(value: Any, texts: list[str]) -> None:
    assert string_list(value, "x") == texts


class Recorder:
    """A backend that remembers what it was asked."""

    def __init__(self, *records: dict[str, Any], error: Exception | None = None) -> None:
        self.asked: list[EdgarRequest] = []
        self.records, self.error = list(records), error

    async def search(self, request: EdgarRequest) -> list[dict[str, Any]]:
        self.asked.append(request)
        if self.error:
            raise self.error
        return self.records


@pytest.mark.parametrize(
    ("cutoff", "given", "days"),
    [
        (None, {}, ("1900-01-01", DEFAULT_CUTOFF)),
        (None, {"end_date": "2030-01-01"}, ("1900-01-01", DEFAULT_CUTOFF)),
        (None, {"end_date": "2020-01-01"}, ("1900-01-01", "2020-01-01")),
        ("2021-06-01", {"end_date": "2022-01-01", "start_date": "2021-01-01"}, ("2021-01-01", "2021-06-01")),
        (None, {"start_date": None, "end_date": ""}, ("1900-01-01", DEFAULT_CUTOFF)),
    ],
)
async def test_nothing_after_the_cutoff_is_searched(
    cutoff: str | None, given: dict[str, Any], days: tuple[str, str]
) -> None:
    backend = Recorder()
    assert await EdgarSearchService(backend, max_end_date=cutoff).search("a", **given) == "[]"
    assert [(request.start_date, request.end_date) for request in backend.asked] == [days]


async def test_no_more_records_than_wanted() -> None:
    service = EdgarSearchService(Recorder({"a": 1}, {"a": 2}, {"a": 3}))
    assert json.loads(await service.search("x", top_n_results="2")) == [{"a": 1}, {"a": 2}]
    assert len(json.loads(await service.search("x"))) == 3


@pytest.mark.parametrize(
    "arguments",
    [
        {"search_query": " "},
        {"search_query": "a" * 3000},
        {"page": 0},
        {"page": 10**30},
        {"page": "two"},
        {"page": 1.5},
        {"top_n_results": 101},
        {"top_n_results": None},
        {"start_date": "01/02/2020"},
        {"start_date": "2020-02-30"},
        {"start_date": "2026-01-01"},
        {"start_date": "2020-01-02", "end_date": "2020-01-01"},
        {"end_date": "never"},
        {"ciks": ["../etc"]},
        {"ciks": ["1" * 11]},
        {"ciks": [True]},
        {"form_types": [{"a": 1}]},
        {"form_types": ["x"] * 201},
    ],
)
async def test_arguments_that_can_t_be_searched_for_are_told(arguments: dict[str, Any]) -> None:
    backend = Recorder()
    answer = json.loads(await EdgarSearchService(backend).search(**{"search_query": "a", **arguments}))
    assert list(answer) == ["error"] and answer["error"]
    assert not backend.asked


async def test_a_backend_that_fails_is_told() -> None:
    service = EdgarSearchService(Recorder(error=EdgarSearchError("no index")))
    assert json.loads(await service.search("a")) == {"error": "no index"}


def test_a_cutoff_must_be_a_day() -> None:
    with pytest.raises(EdgarArgumentError, match="max_end_date is 'soon'"):
        EdgarSearchService(Recorder(), max_end_date="soon")


async def test_a_local_index_behind_the_service(index: Path) -> None:
    service = EdgarSearchService(LocalEdgarSearch(index))
    assert [r["ticker"] for r in json.loads(await service.search("auditor"))] == ["T2"]
    assert "parentheses" in json.loads(await service.search("(a)"))["error"]
    assert "The index holds" in json.loads(await service.search("a", end_date="2000-01-01"))["error"]


# --- the live search --------------------------------------------------------------------------------------------------

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
REQUEST = EdgarRequest("net income", ("10-K",), ("320193",), "2020-01-01", "2021-01-01", 2)


async def served(handler: Handler) -> tuple[web.AppRunner, str]:
    app = web.Application()
    app.router.add_post("/search", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    return runner, f"http://{host}:{port}/search"


def test_what_the_api_is_asked() -> None:
    assert build_payload(REQUEST) == {
        "query": "net income",
        "startDate": "2020-01-01",
        "endDate": "2021-01-01",
        "page": "2",
        "formTypes": ["10-K"],
        "ciks": ["0000320193"],
    }
    assert set(build_payload(EdgarRequest("a"))) == {"query", "startDate", "endDate", "page"}


def test_records_keep_what_is_known_by_name() -> None:
    [record] = select_filings({"filings": [{"cik": "1", "secret": 2}, "x"]})
    assert tuple(record) == live_edgar_search.RECORD_KEYS
    assert record["cik"] == "1"
    answers: list[Any] = [{}, [], {"filings": None}]
    for answer in answers:
        with pytest.raises(EdgarSearchError):
            select_filings(answer)


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([503, 429, {"filings": [{"cik": "1"}]}], None),
        ([{"filings": []}], None),
        ([503, 503, 503], "HTTP 503"),
        ([401], "HTTP 401"),
        (["not json"], "not JSON"),
        ([{"odd": 1}], "no filings"),
        (["drop", {"filings": []}], None),
    ],
)
async def test_the_api_is_asked_again_when_that_may_help(
    answers: list[Any], said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_edgar_search, "FIRST_PAUSE_SECONDS", 0.0)
    seen: list[web.Request] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.append(request)
        given = answers[len(seen) - 1]
        if given == "drop":
            assert request.transport is not None
            request.transport.close()
        if isinstance(given, int):
            return web.Response(status=given, text="busy")
        return web.Response(text=given) if isinstance(given, str) else web.json_response(given)

    runner, url = await served(answer)
    try:
        search = LiveEdgarSearch("key-1", url=url, seconds=20, max_retries=2)
        if said is None:
            await search.search(REQUEST)
        else:
            with pytest.raises(EdgarSearchError, match=said):
                await search.search(REQUEST)
    finally:
        await runner.cleanup()
    assert len(seen) == len(answers)
    assert seen[0].headers["Authorization"] == "key-1"


async def test_an_api_that_is_not_there() -> None:
    search = LiveEdgarSearch("k", url="http://127.0.0.1:1/search", max_retries=0)
    with pytest.raises(EdgarSearchError, match="can't be used now"):
        await search.search(REQUEST)
