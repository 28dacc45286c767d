from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from resources_servers.finance_sec_search import filings
from resources_servers.finance_sec_search.cache_files import write_whole
from resources_servers.finance_sec_search.company_tickers import TickerTableError, parse_tickers
from resources_servers.finance_sec_search.documents import within
from resources_servers.finance_sec_search.tests.fake_sites import OLDER, RECENT, FakeSites
from resources_servers.finance_sec_search.tests.serving import (
    FILING,
    SEC,
    Session,
    online,
    server,
)
from resources_servers.sec_local_index.tests.index_fixtures import build_index, document

CACHED = "filings/320193/000032019323000106/aapl-20230930.htm.txt"


# --- companies --------------------------------------------------------------------------------------------------------


async def test_nothing_is_fetched_before_somebody_asks(sites: FakeSites, tmp_path: Path) -> None:
    session = online(sites, use_cache=True, cache_dir=str(tmp_path / "cache"))
    await session.seed("edgar_search", "parse_html_page")
    assert not sites.asked
    await session.seed("sec_filing_search")
    assert sites.asked == {"/files/company_tickers.json": 1}


async def test_filings_of_a_company_newest_first(sites: FakeSites) -> None:
    found = await online(sites).read("sec_filing_search", ticker=" aapl ")
    assert [filing["accession_number"] for filing in found] == [*RECENT["accessionNumber"], *OLDER["accessionNumber"]]
    assert found[0] == {
        "ticker": "AAPL",
        "company_name": "Apple Inc.",
        "form": "10-K",
        "filing_date": "2023-11-03",
        "report_date": "2023-09-30",
        "accession_number": "0000320193-23-000106",
        "filing_url": FILING,
    }


@pytest.mark.parametrize(
    ("arguments", "forms"),
    [
        ({"form_types": ["10-K"]}, ["10-K"]),
        ({"form_types": "['10-q', '8-K']"}, ["10-Q", "8-K"]),
        ({"form_types": '["10-K"]'}, ["10-K"]),
        ({"form_types": "8-K"}, ["8-K"]),
        ({"start_date": "2023-08-04"}, ["10-K", "10-Q"]),
        ({"end_date": "2023-08-04"}, ["10-Q", "8-K"]),
        ({"start_date": "2023-08-05", "end_date": "2023-11-03"}, ["10-K"]),
        ({}, ["10-K", "10-Q", "8-K"]),
    ],
)
async def test_filters(sites: FakeSites, arguments: dict[str, Any], forms: list[str]) -> None:
    found = await online(sites).read("sec_filing_search", ticker="AAPL", **arguments)
    assert [filing["form"] for filing in found] == forms


async def test_no_more_filings_than_configured(sites: FakeSites) -> None:
    assert len(await online(sites, max_filing_results=2).read("sec_filing_search", ticker="AAPL")) == 2


async def test_what_is_not_found_is_told_with_a_suggestion(sites: FakeSites) -> None:
    session = online(sites)
    unknown = await session.read("sec_filing_search", ticker="NOPE")
    assert "'NOPE'" in unknown["error"] and unknown["suggestion"]
    none = await session.read("sec_filing_search", ticker="AAPL", form_types=["S-1"])
    assert "no filings like that" in none["error"] and none["suggestion"]


async def test_a_class_of_shares_may_be_written_either_way(sites: FakeSites) -> None:
    sites.pages["/submissions/CIK0001067983.json"] = {"filings": {"recent": RECENT, "files": []}}
    found = await online(sites).read("sec_filing_search", ticker="BRK.B")
    assert found[0]["company_name"] == "Berkshire Hathaway Inc"


async def test_filings_are_fetched_once_for_everybody(sites: FakeSites) -> None:
    session = online(sites)
    await asyncio.gather(*(session.use("sec_filing_search", ticker="AAPL") for _ in range(5)))
    assert sites.asked["/files/company_tickers.json"] == 1
    assert sites.asked["/submissions/CIK0000320193.json"] == 1
    assert not any("evil" in path for path in sites.asked)


async def test_only_so_many_companies_are_kept(sites: FakeSites, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filings, "MAX_COMPANIES_IN_MEMORY", 1)
    sites.pages["/submissions/CIK0001067983.json"] = {"filings": {"recent": RECENT, "files": []}}
    session = online(sites)
    for ticker in ("AAPL", "BRK-B", "AAPL"):
        await session.use("sec_filing_search", ticker=ticker)
    assert sites.asked["/submissions/CIK0000320193.json"] == 2


async def test_a_company_s_filings_that_can_t_be_had(sites: FakeSites) -> None:
    sites.pages["/submissions/CIK0000320193.json"] = "<html>sorry</html>"
    assert "is not JSON" in (await online(sites).read("sec_filing_search", ticker="AAPL"))["error"]
    del sites.pages["/submissions/CIK0000320193.json"]
    assert "HTTP 404" in (await online(sites).read("sec_filing_search", ticker="AAPL"))["error"]


async def test_the_table_is_asked_for_again_until_it_comes(sites: FakeSites) -> None:
    sites.first["/files/company_tickers.json"] = [503, 404, "drop", 429]
    assert (await online(sites).seed("sec_filing_search")).status_code == 200
    assert sites.asked["/files/company_tickers.json"] == 5


async def test_without_the_table_a_rollout_fails_and_the_next_one_tries_again(sites: FakeSites) -> None:
    session = online(sites)
    sites.pages["/files/company_tickers.json"] = {}
    with pytest.raises(TickerTableError, match="use_cache=true"):
        await session.seed("sec_filing_search")
    assert sites.asked["/files/company_tickers.json"] == 5
    assert "can't be had" in (await session.read("sec_filing_search", ticker="AAPL"))["error"]
    assert (await session.seed("edgar_search")).status_code == 200
    sites.pages["/files/company_tickers.json"] = {"0": {"cik_str": 320193, "ticker": "AAPL", "title": "A"}}
    assert (await session.seed("sec_filing_search")).status_code == 200


TABLES = [
    ({"0": {"cik_str": 1, "ticker": "a", "title": "A"}}, {"A": (1, "A")}),
    ({"B": {"cik": "0000000002", "name": "Bee"}}, {"B": (2, "Bee")}),
    ({"C": 3}, {"C": (3, "C")}),
    ([{"cik_str": 4, "ticker": "D", "title": "Dee"}], {"D": (4, "Dee")}),
    ({"E": None, "F": {"cik": "../x"}, "G": {"cik": "1" * 11}, "": {"cik": 1}}, {}),
    (None, {}),
    ("x", {}),
]


@pytest.mark.parametrize(("content", "companies"), TABLES)
def test_tables_of_tickers(content: Any, companies: dict[str, tuple[int, str]]) -> None:
    found = parse_tickers(content)
    assert {ticker: (company.cik, company.name) for ticker, company in found.items()} == companies


async def test_an_overlay_goes_before_the_table(sites: FakeSites, tmp_path: Path) -> None:
    overlay = tmp_path / "overlay.json"
    overlay.write_text(json.dumps({"BRK-B": {"cik": 320193, "name": "Over"}, "NEW": {"cik": 320193, "name": "New"}}))
    session = online(sites, supplementary_tickers_fpath=str(overlay))
    for ticker, name in (("BRK-B", "Over"), ("new", "New"), ("AAPL", "Apple Inc.")):
        found = await session.read("sec_filing_search", ticker=ticker)
        assert found[0]["company_name"] == name


@pytest.mark.parametrize("content", [None, "[]", "{", '"x"'])
def test_an_overlay_that_is_none_is_refused_at_the_start(content: str | None, tmp_path: Path) -> None:
    overlay = tmp_path / "overlay.json"
    if content is not None:
        overlay.write_text(content)
    with pytest.raises(RuntimeError, match="supplementary_tickers_fpath"):
        server(supplementary_tickers_fpath=str(overlay))


# --- the cache --------------------------------------------------------------------------------------------------------


async def test_the_cache_fills_itself_and_then_is_all_that_is_needed(sites: FakeSites, tmp_path: Path) -> None:
    own = {"use_cache": True, "cache_dir": str(tmp_path / "cache")}
    session = online(sites, **own)
    listed = await session.use("sec_filing_search", ticker="AAPL")
    await session.use("parse_html_page", url=FILING, key="k")
    held = {str(file.relative_to(tmp_path / "cache")) for file in (tmp_path / "cache").rglob("*") if file.is_file()}
    assert held == {"tickers.json", "filings_metadata/0000320193.json", CACHED}
    again = Session(server(offline=True, **own))
    assert await again.use("sec_filing_search", ticker="AAPL") == listed
    assert "Stored 32 characters" in await again.use("parse_html_page", url=FILING, key="k")


async def test_without_use_cache_nothing_is_read_or_written(sites: FakeSites, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    write_whole(cache / "tickers.json", b'{"ONLY": {"cik": 1}}')
    session = online(sites, cache_dir=str(cache))
    assert len(await session.read("sec_filing_search", ticker="AAPL")) == 3
    await session.use("parse_html_page", url=FILING, key="k")
    assert [file.name for file in cache.iterdir()] == ["tickers.json"]


@pytest.mark.parametrize("name", ["tickers.json", "filings_metadata/0000320193.json"])
@pytest.mark.parametrize("content", [b"{", b"[1", b'"x"', b"\xff"])
async def test_a_damaged_file_of_the_cache_is_fetched_again(
    sites: FakeSites, tmp_path: Path, name: str, content: bytes
) -> None:
    write_whole(tmp_path / name, content)
    found = await online(sites, use_cache=True, cache_dir=str(tmp_path)).read("sec_filing_search", ticker="AAPL")
    assert len(found) == 3
    assert json.loads((tmp_path / name).read_text())


async def test_answers_of_the_sec_are_a_cache_too(sites: FakeSites, tmp_path: Path) -> None:
    write_whole(tmp_path / "filings_metadata" / "0000320193.json", json.dumps({"filings": {"recent": RECENT}}).encode())
    found = await online(sites, use_cache=True, cache_dir=str(tmp_path)).read("sec_filing_search", ticker="AAPL")
    assert len(found) == 2


async def test_a_cache_that_can_t_be_written_costs_nothing_but_time(sites: FakeSites, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    session = online(sites, use_cache=True, cache_dir=str(blocked / "cache"))
    assert len(await session.read("sec_filing_search", ticker="AAPL")) == 3
    assert "Stored" in await session.use("parse_html_page", url=FILING, key="k")


@pytest.mark.parametrize("place", ["320193/000032019323000106", "0000320193/0000320193-23-000106"])
async def test_the_cache_is_found_however_numbers_are_written(tmp_path: Path, place: str) -> None:
    write_whole(tmp_path / "filings" / place / "aapl-20230930.htm.txt", b"from the cache")
    session = Session(server(offline=True, use_cache=True, cache_dir=str(tmp_path)))
    assert "Stored 14 characters" in await session.use("parse_html_page", url=FILING, key="k")


# --- the dump ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["320193/000032019323000106", "Archives/edgar/data/320193/000032019323000106"])
async def test_a_dump_is_read_in_place_of_the_web(tmp_path: Path, place: str) -> None:
    write_whole(tmp_path / place / "aapl-20230930.htm", b"<p>from the dump</p>")
    session = Session(server(offline=True, sec_dump_path=str(tmp_path)))
    assert "Stored 13 characters" in await session.use("parse_html_page", url=FILING, key="k")
    other = FILING.replace("20230930", "20230701")
    assert "works offline" in await session.use("parse_html_page", url=other, key="k")


@pytest.mark.parametrize(
    ("source", "stored"),
    [("x/one.htm", True), ("/etc/hostname", False), ("../outside.htm", False), ("link.htm", False)],
)
async def test_the_index_says_where_the_dump_has_a_document(tmp_path: Path, source: str, stored: bool) -> None:
    dump = tmp_path / "dump"
    write_whole(dump / "x" / "one.htm", b"one")
    write_whole(tmp_path / "outside.htm", b"outside")
    (dump / "link.htm").symlink_to(tmp_path / "outside.htm")
    index = build_index(tmp_path / "index", [document(1, "text", source_path=source)])
    session = Session(server(offline=True, sec_dump_path=str(dump), local_edgar_index_path=str(index)))
    answer = await session.use(
        "parse_html_page", url=f"{SEC}/Archives/edgar/data/1001/000000100123000001/doc1.htm", key="k"
    )
    assert ("Stored" in answer) == stored


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "a/../b", "a\\..\\..\\x", "..", "a\0b"])
def test_paths_that_lead_out_of_the_dump(tmp_path: Path, path: str) -> None:
    assert within(tmp_path, path) is None


def test_paths_within_the_dump(tmp_path: Path) -> None:
    assert within(tmp_path, "a/b..c") == tmp_path / "a" / "b..c"
