"""The benchmarks with the agents that answer them; `gym list benchmarks` lists them without composing any."""

from typing import Any

from nemo_gym.cli.catalog import print_rows, titled
from nemo_gym.cli.given import given, is_on
from nemo_gym.cli.listing_table import print_listing
from nemo_gym.cli.utils import fuzzy_matches, print_no_matches

_COLUMNS = ("Name", "Agent", "Domain", "Repeats", "Description")


def list_benchmarks() -> None:
    """Print every benchmark that can be composed."""
    from nemo_gym.benchmarks import discover_benchmarks
    from nemo_gym.discovery import read_config_metadata

    values = given(("json", "query"))
    rows: list[dict[str, Any]] = []
    for benchmark in discover_benchmarks().values():
        domain, description = read_config_metadata(benchmark.path)
        rows.append(
            {
                "name": benchmark.name,
                "agent_name": benchmark.agent_name,
                "environment_server": benchmark.environment_server,
                "domain": domain,
                "num_repeats": benchmark.num_repeats,
                "description": description,
            }
        )
    query = values.get("query")
    found = [row for row in rows if not query or fuzzy_matches(query, row["name"], row["domain"], row["description"])]
    if not found:
        print_no_matches("benchmarks", query, json_format=is_on(values, "json"))
    elif is_on(values, "json"):
        print_rows(found)
    else:
        keys = ("name", "agent_name", "domain", "num_repeats", "description")
        cells = [tuple(str(row[key] or "") for key in keys) for row in found]
        print_listing(titled("Benchmarks", query, len(found)), _COLUMNS, cells)
