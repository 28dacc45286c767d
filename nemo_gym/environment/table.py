"""The table of environments in a README, made from their manifests and configs.

`python -m nemo_gym.environment.table README.md` writes it between its markers; with `--check` it only says whether
that is due.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nemo_gym.config.environment_catalog import EnvironmentCatalogEntry, discover_environment_catalog
from nemo_gym.config.errors import ConfigError
from nemo_gym.config.metadata import composed_file, datasets_in, read_resources_server_value

BEGIN, END = "<!-- environments:begin -->", "<!-- environments:end -->"
_COLUMNS = (
    "Environment",
    "Domain",
    "What is asked",
    "What it is good for",
    "Train",
    "Validation",
    "Data set",
    "License",
)
_NOTHING = "–"


@dataclass(frozen=True)
class Availability:
    """The rows beside the examples: whether there are some, where they are published, and under which license."""

    train: bool
    validation: bool
    repository: str | None
    license: str | None


def environments_table(root: Path) -> str:
    """A Markdown table of all environments below a folder, one for benchmarks behind it where there are some."""
    entries = list(discover_environment_catalog([root]).values())
    tables = []
    for kind, noun in (("environment", _COLUMNS[0]), ("benchmark", "Benchmark")):
        rows = sorted(_row(entry, root) for entry in entries if entry.kind == kind)
        if rows:
            tables.append(_markdown((noun, *_COLUMNS[1:]), rows))
    return "\n\n".join(tables)


def updated(text: str, root: Path) -> str:
    """A README with the table of today. Raises ConfigError when its markers are missing."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ConfigError(f"The table has no place: put the lines {BEGIN} and {END} where it belongs.")
    return f"{head}{BEGIN}\n\n{environments_table(root)}\n\n{END}{tail}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the table of environments into a README.")
    parser.add_argument("readme", type=Path)
    parser.add_argument("--check", action="store_true", help="change nothing; end with 1 when it is out of date")
    options = parser.parse_args()
    before = options.readme.read_text(encoding="utf-8")
    after = updated(before, options.readme.absolute().parent)
    if not options.check:
        options.readme.write_text(after, encoding="utf-8")
    elif after != before:
        sys.exit(f"The table in {options.readme} is out of date: python -m nemo_gym.environment.table {options.readme}")


def _row(entry: EnvironmentCatalogEntry, root: Path) -> tuple[str, ...]:
    data = _availability(datasets_in(composed_file(entry.config_path)))
    name = entry.resources_server_selector or entry.name
    flag = "resources-server" if entry.resources_server_selector else entry.kind
    repository = f"[{data.repository}](https://huggingface.co/datasets/{data.repository})" if data.repository else None
    return tuple(
        cell or _NOTHING
        for cell in (
            f"[{name}]({entry.path.relative_to(root).as_posix()}) <br> `--{flag} {name}`",
            entry.domain,
            entry.description,
            read_resources_server_value(entry.config_path),
            "✓" if data.train else None,
            "✓" if data.validation else None,
            repository,
            data.license,
        )
    )


def _availability(datasets: Iterable[Mapping[str, Any]]) -> Availability:
    rows = [dataset for dataset in datasets if dataset.get("type") != "example"]
    types = {dataset.get("type") for dataset in rows}
    repositories = [repository for dataset in rows if (repository := _repository(dataset))]
    licenses = list(dict.fromkeys(str(dataset["license"]) for dataset in rows if dataset.get("license")))
    return Availability(
        "train" in types, "validation" in types, next(iter(repositories), None), ", ".join(licenses) or None
    )


def _repository(dataset: Mapping[str, Any]) -> str | None:
    for source in (dataset.get("source"), dataset.get("huggingface_identifier")):
        if isinstance(source, Mapping) and source.get("type", "huggingface") == "huggingface":
            return source.get("repo_id")
    return None


def _markdown(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(columns)
    lines = [names, ["---"] * len(names), *([_escaped(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _escaped(cell: str) -> str:
    return " ".join(cell.replace("|", "\\|").split())


if __name__ == "__main__":
    main()
