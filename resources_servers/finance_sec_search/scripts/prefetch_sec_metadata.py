"""Fetch the table of tickers and the lists of filings into a cache, so that a run with use_cache needs no network.

python resources_servers/finance_sec_search/scripts/prefetch_sec_metadata.py --cache_dir CACHE --tickers AAPL MSFT

An interrupted run goes on where it was: files that are there and whole are kept. `--check` fetches nothing, and ends
with 1 if a file is missing or damaged.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from nemo_gym.errors import GymError
from resources_servers.finance_sec_search.company_tickers import read_overlay
from resources_servers.finance_sec_search.fetching import RateLimiter, WebClient
from resources_servers.finance_sec_search.prefetching import Outcome, Prefetch, PrefetchError, broken_files
from resources_servers.finance_sec_search.settings import USER_AGENT


def tickers_in(config: Path) -> list[str]:
    """The tickers of a YAML file: a list, or an object with lists, such as one under `tickers`."""
    import yaml

    try:
        content = yaml.safe_load(config.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise PrefetchError(f"--ticker_config: {config} can't be read as YAML: {error}") from error
    found = list(_texts(content))
    if not found:
        raise PrefetchError(f"--ticker_config: {config} names no tickers")
    return found


def _texts(content: Any) -> list[str]:
    if isinstance(content, dict):
        return [text for value in content.values() for text in _texts(value)]
    if isinstance(content, list):
        return [text for value in content for text in _texts(value)]
    return [content] if isinstance(content, str) else []


async def prefetch(arguments: argparse.Namespace) -> Outcome:
    """What became of the companies asked for. Raises GymError when nothing can be fetched at all."""
    tickers = [*(arguments.tickers or ()), *(tickers_in(arguments.ticker_config) if arguments.ticker_config else ())]
    overlay = read_overlay(arguments.supplementary_tickers) if arguments.supplementary_tickers else {}
    sites = {"https://www.sec.gov": arguments.sec_base_url, "https://data.sec.gov": arguments.sec_data_base_url}
    web = WebClient(
        user_agent=arguments.user_agent,
        limiter=RateLimiter(arguments.requests_per_second),
        base_urls={site: other.rstrip("/") for site, other in sites.items() if other},
        allow_private=any(sites.values()),
    )
    try:
        filling = Prefetch(web, arguments.cache_dir.expanduser())
        table = await filling.tickers(overlay, refresh=arguments.refresh)
        return await filling.filings(tickers, table, refresh=arguments.refresh)
    finally:
        await web.close()


def main(argv: list[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    try:
        if arguments.check:
            return _checked(arguments.cache_dir.expanduser())
        outcome = asyncio.run(prefetch(arguments))
    except GymError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.exit_code
    print(f"{len(outcome.fetched)} fetched, {len(outcome.kept)} were there: {arguments.cache_dir}")
    if outcome.unknown:
        print(f"No company has the ticker {', '.join(outcome.unknown)}.", file=sys.stderr)
    for ticker, problem in outcome.failed.items():
        print(f"{ticker}: {problem}", file=sys.stderr)
    if outcome.failed:
        print("Run the same command again: what is there is kept.", file=sys.stderr)
    return 1 if outcome.failed or outcome.unknown else 0


def _checked(folder: Path) -> int:
    broken = broken_files(folder)
    for name in broken:
        print(f"{name} is missing or damaged", file=sys.stderr)
    print(f"{folder}: {'whole' if not broken else f'{len(broken)} files to fetch again'}")
    return 1 if broken else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Fetch tickers and lists of filings into a cache.")
    parser.add_argument("--cache_dir", "--cache-dir", type=Path, required=True)
    parser.add_argument("--tickers", nargs="+", help="companies to fetch the filings of")
    parser.add_argument("--ticker_config", "--ticker-config", type=Path, help="a YAML file with more of them")
    parser.add_argument(
        "--supplementary_tickers",
        "--supplementary-tickers",
        type=Path,
        help="a JSON file with further companies",
    )
    parser.add_argument("--user_agent", "--user-agent", default=USER_AGENT, help="your name and mail address")
    parser.add_argument("--requests_per_second", "--requests-per-second", type=float, default=10)
    parser.add_argument("--refresh", action="store_true", help="fetch again what is there")
    parser.add_argument("--check", action="store_true", help="only say whether the cache is whole")
    parser.add_argument("--sec_base_url", help="a mirror of https://www.sec.gov")
    parser.add_argument("--sec_data_base_url", help="a mirror of https://data.sec.gov")
    return parser


if __name__ == "__main__":
    sys.exit(main())
