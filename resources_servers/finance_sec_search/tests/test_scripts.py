from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from resources_servers.finance_sec_search.scripts import (
    convert_questions,
    prefetch_sec_metadata,
    prepare_secque_questions,
)
from resources_servers.finance_sec_search.scripts.convert_questions import EDGAR_SEARCH_TOOL, PROMPT, convert_entry
from resources_servers.finance_sec_search.task_data import TaskData
from resources_servers.finance_sec_search.tests.fake_sites import FakeSites
from resources_servers.finance_sec_search.tests.serving import Session, server

METADATA = "filings_metadata/0000320193.json"


async def prefetch(sites: FakeSites, cache: Path, *options: str) -> int:
    """Run the script in a thread, as it has an event loop of its own."""
    own = ["--cache_dir", str(cache), "--sec_base_url", sites.url, "--sec_data_base_url", sites.url]
    own += ["--requests_per_second", "10000"]
    return await asyncio.to_thread(prefetch_sec_metadata.main, [*own, *options])


async def test_a_prefetched_cache_is_all_that_a_run_needs(sites: FakeSites, tmp_path: Path) -> None:
    assert await prefetch(sites, tmp_path, "--tickers", "aapl") == 0
    session = Session(server(offline=True, use_cache=True, cache_dir=str(tmp_path)))
    assert (await session.seed("sec_filing_search")).status_code == 200
    assert len(await session.read("sec_filing_search", ticker="AAPL")) == 3
    assert "works offline" in (await session.read("sec_filing_search", ticker="BRK-B"))["error"]


async def test_an_interrupted_prefetch_goes_on(
    sites: FakeSites, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sites.first["/submissions/CIK0000320193-submissions-001.json"] = [404]
    assert await prefetch(sites, tmp_path, "--tickers", "AAPL") == 1
    assert "Run the same command again" in capsys.readouterr().err
    assert not (tmp_path / METADATA).exists()
    assert await prefetch(sites, tmp_path, "--tickers", "AAPL") == 0
    assert sites.asked["/files/company_tickers.json"] == 1
    asked = sites.asked.total()
    assert await prefetch(sites, tmp_path, "--tickers", "AAPL", "AAPL") == 0
    assert "0 fetched, 1 were there" in capsys.readouterr().out
    assert sites.asked.total() == asked


@pytest.mark.parametrize("damage", [lambda whole: whole[:-3], lambda whole: whole + b" "], ids=["cut", "longer"])
@pytest.mark.parametrize("name", ["tickers.json", METADATA])
async def test_a_damaged_file_is_noticed_and_fetched_again(
    sites: FakeSites,
    tmp_path: Path,
    name: str,
    damage: Callable[[bytes], bytes],
    capsys: pytest.CaptureFixture[str],
) -> None:
    await prefetch(sites, tmp_path, "--tickers", "AAPL")
    whole = (tmp_path / name).read_bytes()
    assert prefetch_sec_metadata.main(["--cache_dir", str(tmp_path), "--check"]) == 0
    (tmp_path / name).write_bytes(damage(whole))
    assert prefetch_sec_metadata.main(["--cache_dir", str(tmp_path), "--check"]) == 1
    assert f"{name} is missing or damaged" in capsys.readouterr().err
    assert await prefetch(sites, tmp_path, "--tickers", "AAPL") == 0
    assert (tmp_path / name).read_bytes() == whole


async def test_everything_is_fetched_again_when_wanted(sites: FakeSites, tmp_path: Path) -> None:
    await prefetch(sites, tmp_path, "--tickers", "AAPL")
    await prefetch(sites, tmp_path, "--tickers", "AAPL", "--refresh")
    assert sites.asked["/files/company_tickers.json"] == sites.asked["/submissions/CIK0000320193.json"] == 2


async def test_tickers_come_from_a_file_and_an_overlay(
    sites: FakeSites, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tickers.yaml").write_text("tickers: [aapl]\nothers:\n- NEW\n- NOPE\n")
    (tmp_path / "overlay.json").write_text('{"NEW": {"cik": 320193, "name": "New"}}')
    options = [
        "--ticker_config",
        str(tmp_path / "tickers.yaml"),
        "--supplementary_tickers",
        str(tmp_path / "overlay.json"),
    ]
    assert await prefetch(sites, tmp_path / "cache", *options) == 1
    said = capsys.readouterr()
    assert "1 fetched, 1 were there" in said.out and "No company has the ticker NOPE." in said.err
    session = Session(server(offline=True, use_cache=True, cache_dir=str(tmp_path / "cache")))
    assert (await session.read("sec_filing_search", ticker="NEW"))[0]["company_name"] == "New"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--check"], "has no prefetch_checksums.json"),
        (["--ticker_config", "nowhere.yaml"], "can't be read as YAML"),
        (["--supplementary_tickers", "nowhere.json"], "can't be read as JSON"),
    ],
)
def test_what_can_t_be_done_is_one_sentence(
    options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prefetch_sec_metadata.main(["--cache_dir", str(tmp_path), *options]) == 1
    error = capsys.readouterr().err
    assert error.startswith("Error: ") and said in error


# --- questions --------------------------------------------------------------------------------------------------------

ENTRY = {"question": "Why {x}?", "expected_answer": "So.", "uuid": "u"}


@pytest.mark.parametrize(
    ("options", "tools"),
    [
        ({}, ["sec_filing_search", "parse_html_page", "retrieve_information", "submit_final_result"]),
        (
            {"include_web_search": True, "search_tool": "edgar_search"},
            ["edgar_search", "parse_html_page", "retrieve_information", "submit_final_result", "web_search"],
        ),
    ],
)
def test_a_question_becomes_a_row(options: dict[str, Any], tools: list[str]) -> None:
    row = convert_entry(ENTRY, **options)
    params = row["responses_create_params"]
    assert [tool["name"] for tool in params["tools"]] == tools
    assert all(tool["strict"] is False for tool in params["tools"])
    assert params["input"] == [{"role": "user", "content": PROMPT.replace("{question}", "Why {x}?")}]
    assert {name: row[name] for name in ENTRY} == ENTRY
    TaskData.model_validate(row)


def test_schemas_say_what_tools_take() -> None:
    parameters = EDGAR_SEARCH_TOOL["parameters"]
    assert parameters["required"] == ["search_query"]
    assert parameters["properties"]["ciks"]["type"] == "array"
    assert parameters["properties"]["page"]["type"] == "integer"
    assert all(schema["description"] for schema in parameters["properties"].values())


def test_a_file_of_questions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given, made = tmp_path / "in.jsonl", tmp_path / "out" / "rows.jsonl"
    given.write_text(json.dumps(ENTRY) + "\n\n" + json.dumps(ENTRY) + "\n")
    assert convert_questions.main(["-i", str(given), "-o", str(made), "-w", "-s", "edgar_search"]) == 0
    rows = [json.loads(line) for line in made.read_text().splitlines()]
    assert [len(row["responses_create_params"]["tools"]) for row in rows] == [5, 5]
    for broken in ('{"question": "x"}', '{"question": " ", "expected_answer": "y"}', "[]", "{"):
        given.write_text(json.dumps(ENTRY) + "\n" + broken + "\n")
        assert convert_questions.main(["-i", str(given), "-o", str(made)]) == 1
        assert "line 2: " in capsys.readouterr().err
    assert convert_questions.main(["-i", str(tmp_path / "none"), "-o", str(made)]) == 1


def test_questions_of_secque(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {"Question": "A?", "Answer": "a", "type": 1},
        {"query": "B?", "ground_truth": 2},
        {"Question": "A?", "Answer": "again"},
        {"Question": "C?", "Answer": None},
    ]
    monkeypatch.setattr(prepare_secque_questions, "hub_rows", lambda repo_id, split: rows)
    made = tmp_path / "questions.jsonl"
    assert prepare_secque_questions.main(["-o", str(made)]) == 0
    assert [json.loads(line) for line in made.read_text().splitlines()] == [
        {"question": "A?", "expected_answer": "a"},
        {"question": "B?", "expected_answer": "2"},
    ]
    monkeypatch.setattr(prepare_secque_questions, "hub_rows", lambda repo_id, split: [{"x": 1}])
    assert prepare_secque_questions.main(["-o", str(made)]) == 1
    assert capsys.readouterr().err.startswith("Error: There are no rows")
