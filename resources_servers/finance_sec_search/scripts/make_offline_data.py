"""Write the made-up filings of made-up companies that the server works with offline, and the example rows about them.

python resources_servers/finance_sec_search/scripts/make_offline_data.py [FOLDER]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from resources_servers.finance_sec_search.cache_files import FILINGS_FOLDER, METADATA_FOLDER, TICKERS, write_whole
from resources_servers.finance_sec_search.company_tickers import Company
from resources_servers.finance_sec_search.filings import Filing, as_json
from resources_servers.finance_sec_search.scripts.convert_questions import convert_entry
from resources_servers.sec_local_index.html_text import html_to_text
from resources_servers.sec_local_index.index_writing import IndexedDocument, write_index
from resources_servers.sec_local_index.sec_urls import parse_sec_archives_url

DATA = Path(__file__).parents[1] / "data"
INDEX = "index.sqlite"

QUILLMERE = Company("QZLM", 9_999_000_101, "Quillmere Lumen Corp")
VORRAND = Company("XVRD", 9_999_000_102, "Vorrand Optics Inc")
ZEPHYR = Company("ZPKE", 9_999_000_103, "Zephyr Pike Logistics Ltd")
COMPANIES = (QUILLMERE, VORRAND, ZEPHYR)

BUSINESS = {
    QUILLMERE: "makes lamps and lighting controls for greenhouses, which it sells to growers and through dealers",
    VORRAND: "grinds lenses for surveying instruments and builds the instruments' optical heads for other makers",
    ZEPHYR: "runs cold stores and refrigerated trucks between inland farms and two sea ports",
}
RISKS = {
    QUILLMERE: "One dealer, Harrowgate Growers Supply, took 31% of what it sold in the last year.",
    VORRAND: "It buys all its optical glass from a single foundry, under a contract that ends in 2026.",
    ZEPHYR: "Diesel was 23% of its operating costs, and its contracts pass on only a part of a higher price.",
}


@dataclass(frozen=True)
class Year:
    """Figures of a fiscal year that ended on 31 December, in thousands of dollars, and people at its end."""

    year: int
    revenue: int
    operating_income: int
    net_income: int
    total_assets: int
    employees: int
    segments: dict[str, int]


YEARS = {
    QUILLMERE: (
        Year(2022, 371_900, 40_909, 29_400, 512_300, 1_480, {"Lamps": 255_200, "Controls": 116_700}),
        Year(2023, 412_600, 53_638, 38_750, 548_100, 1_555, {"Lamps": 268_190, "Controls": 144_410}),
    ),
    VORRAND: (
        Year(2022, 198_400, 23_808, 17_100, 240_700, 812, {"Lenses": 128_960, "Optical heads": 69_440}),
        Year(2023, 187_250, 16_853, 11_920, 233_900, 774, {"Lenses": 117_968, "Optical heads": 69_282}),
    ),
    ZEPHYR: (
        Year(2022, 640_000, 44_800, 27_300, 905_500, 3_910, {"Cold stores": 268_800, "Trucking": 371_200}),
        Year(2023, 702_500, 63_225, 41_080, 958_200, 4_135, {"Cold stores": 309_100, "Trucking": 393_400}),
    ),
}
HALF_YEAR = {QUILLMERE: (98_300, 104_750), VORRAND: (47_100, 45_900), ZEPHYR: (168_200, 176_900)}
EVENTS = {
    ZEPHYR: (
        "2023-09-18",
        """\
On September 14, 2023 a fire damaged the cold store of Zephyr Pike Logistics Ltd at Marrow Creek. Nobody was hurt. The
company expects a loss of about $7.4 million before insurance, of which its insurers should bear $5.9 million, and that
the store opens again in the second quarter of 2024.""",
    ),
    VORRAND: (
        "2023-11-06",
        """\
On November 1, 2023 Ottoline Marsh resigned as chief financial officer of Vorrand Optics Inc, from December 31, 2023.
The board named Pell Anders, its controller, as her successor.""",
    ),
}

QUESTIONS = (
    (
        "What was the revenue of Quillmere Lumen Corp (QZLM) in fiscal year 2023, and by what percentage did it grow?",
        "$412.6 million, 10.9% more than the $371.9 million of fiscal year 2022",
        "sec_filing_search",
    ),
    (
        "What was the operating margin of Zephyr Pike Logistics Ltd (ZPKE) in fiscal years 2022 and 2023?",
        "7.0% in fiscal year 2022 and 9.0% in fiscal year 2023",
        "sec_filing_search",
    ),
    (
        "Which company reported a fire in a cold store in 2023, and what loss before insurance did it expect?",
        "Zephyr Pike Logistics Ltd; about $7.4 million before insurance",
        "edgar_search",
    ),
    (
        "What share of the revenue of Vorrand Optics Inc (XVRD) in fiscal year 2023 came from optical heads?",
        "37.0% ($69.282 million of $187.25 million)",
        "sec_filing_search",
    ),
    (
        "Which company buys all its optical glass from one foundry, and when does that contract end?",
        "Vorrand Optics Inc; in 2026",
        "edgar_search",
    ),
)


def documents() -> Iterator[tuple[Company, Filing, str]]:
    """Every filing with its page."""
    for company in COMPANIES:
        number = 1
        for year in YEARS[company]:
            previous = next((other for other in YEARS[company] if other.year == year.year - 1), None)
            filed = f"{year.year + 1}-02-21"
            filing = _filing(company, number, "10-K", filed, f"{year.year}-12-31")
            yield company, filing, _annual_report(company, year, previous)
            number += 1
        yield (
            company,
            _filing(company, number, "10-Q", "2023-08-03", "2023-06-30"),
            _quarterly_report(company, *HALF_YEAR[company]),
        )
        if company in EVENTS:
            filed, text = EVENTS[company]
            yield (
                company,
                _filing(company, number + 1, "8-K", filed, filed),
                _page(company, "8-K", f"<p>{' '.join(text.split())}</p>"),
            )


def write_all(data: Path = DATA) -> int:
    """Write the offline data and the example rows, and say how many documents there are."""
    folder = data / "offline"
    indexed: list[IndexedDocument] = []
    filings: dict[Company, list[Filing]] = {company: [] for company in COMPANIES}
    for company, filing, page in documents():
        text = html_to_text(page)
        url = filing.url(company.cik)
        parsed = parse_sec_archives_url(url)
        assert parsed is not None
        place = folder / FILINGS_FOLDER / parsed.cik / parsed.accession / f"{parsed.document}.txt"
        write_whole(place, text.encode())
        filings[company].append(filing)
        indexed.append(_indexed(company, filing, url, text))
    for company, own in filings.items():
        newest_first = sorted(own, key=lambda filing: filing.filing_date, reverse=True)
        write_whole(folder / METADATA_FOLDER / f"{company.padded_cik}.json", as_json(company.padded_cik, newest_first))
    table = {company.ticker: {"cik": company.cik, "name": company.name} for company in COMPANIES}
    write_whole(folder / TICKERS, json.dumps(table, indent=1).encode())
    rows = [
        convert_entry({"question": question, "expected_answer": answer}, search_tool=tool)
        for question, answer, tool in QUESTIONS
    ]
    write_whole(data / "example.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode())
    return write_index(folder / INDEX, indexed)


def _filing(company: Company, number: int, form: str, filed: str, reported: str) -> Filing:
    accession = f"{company.padded_cik}-{filed[2:4]}-{number:06d}"
    name = f"{company.ticker.lower()}-{reported.replace('-', '')}-{form.replace('-', '').lower()}.htm"
    return Filing(accession, form, filed, reported, name)


def _indexed(company: Company, filing: Filing, url: str, text: str) -> IndexedDocument:
    return IndexedDocument(
        accession_number=filing.accession_number,
        cik=str(company.cik),
        ticker=company.ticker,
        company_name=company.name,
        form_type=filing.form,
        filing_date=filing.filing_date,
        url=url,
        text=text,
        description=f"{filing.form} of {company.name}",
    )


def _annual_report(company: Company, year: Year, previous: Year | None) -> str:
    years = [year] if previous is None else [year, previous]
    figures = (
        ("Revenue", [each.revenue for each in years]),
        ("Operating income", [each.operating_income for each in years]),
        ("Net income", [each.net_income for each in years]),
        ("Total assets", [each.total_assets for each in years]),
    )
    segments = tuple((name, [each.segments[name] for each in years]) for name in year.segments)
    heads = [f"Fiscal {each.year}" for each in years]
    body = (
        f"<p>For the fiscal year that ended on December 31, {year.year}.</p>"
        f"<h2>Business</h2><p>{company.name} {BUSINESS[company]}. "
        f"It had {year.employees:,} employees at the end of the year.</p><h2>Risks</h2><p>{RISKS[company]}</p>"
        f"<h2>Selected figures</h2><p>In thousands of dollars.</p>{_table(heads, figures)}"
        f"<h2>Revenue by segment</h2><p>In thousands of dollars.</p>{_table(heads, segments)}"
    )
    return _page(company, "10-K", body)


def _quarterly_report(company: Company, before: int, now: int) -> str:
    rows = (("Revenue of the quarter", [now, before]),)
    heads = ["June 30, 2023", "June 30, 2022"]
    body = f"<p>For the quarter that ended on June 30, 2023. In thousands of dollars.</p>{_table(heads, rows)}"
    return _page(company, "10-Q", body)


def _table(heads: list[str], rows: tuple[tuple[str, list[int]], ...]) -> str:
    lines = [["", *heads], *([name, *(f"{value:,}" for value in values)] for name, values in rows)]
    return "<table>" + "".join("<tr><td>" + "</td><td>".join(line) + "</td></tr>" for line in lines) + "</table>"


def _page(company: Company, form: str, body: str) -> str:
    notice = "This company and this filing are made up, for trying out software."
    return (
        f"<html><head><title>{form} of {company.name}</title><style>p {{ margin: 0 }}</style></head>"
        f"<body><p>{notice}</p><h1>{company.name}</h1><p>Form {form}</p>{body}</body></html>"
    )


if __name__ == "__main__":
    print(f"{write_all(Path(sys.argv[1]) if len(sys.argv) > 1 else DATA)} documents")
