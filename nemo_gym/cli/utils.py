"""What commands and the code around them share: suggestions, tables, and clean exits."""

import difflib
import functools
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn, ParamSpec, TypeVar

from nemo_gym.config.hints import did_you_mean

__all__ = [
    "did_you_mean",
    "exit_cleanly_on_config_error",
    "exit_unknown_component",
    "flag_is_on",
    "fuzzy_matches",
    "is_verbose",
    "print_no_matches",
    "print_rich_table",
    "render_component_inspection",
]

P = ParamSpec("P")
R = TypeVar("R")


def fuzzy_matches(query: str, *fields: str | None) -> bool:
    """Whether a query is part of any field, or close to a whole field or to one of its words."""
    wanted = query.lower()
    for field in filter(None, fields):
        text = field.lower()
        words = text.replace("_", " ").replace("-", " ").split()
        if wanted in text or difflib.get_close_matches(wanted, [text, *words], n=1, cutoff=0.70):
            return True
    return False


def exit_unknown_component(kind: str, name: str, candidates: Iterable[str]) -> NoReturn:
    """Say that a component does not exist, suggest the closest, and exit 1."""
    print(f"Error: unknown {kind} '{name}'.{did_you_mean(name, candidates)}", file=sys.stderr)
    raise SystemExit(1)


def render_component_inspection(
    *,
    name: str,
    noun: str,
    domain: str | None = None,
    description: str | None = None,
    details: dict[str, str] | None = None,
    usage_example: str | None = None,
    json_format: bool = False,
) -> None:
    """Print one component: for people, or as one JSON object."""
    if json_format:
        row = {
            "name": name,
            "type": noun,
            "domain": domain,
            "description": description,
            "details": details or {},
            "usage_example": usage_example,
        }
        print(json.dumps(row, indent=2, ensure_ascii=False))
        return
    blocks = [f"The {name} {noun}" + (f" (domain: {domain})" if domain else "")]
    if description:
        blocks.append(description)
    if details:
        blocks.append("\n".join(["Details:", *(f"  {label}: {value}" for label, value in details.items())]))
    if usage_example:
        blocks.append(f"Usage example:\n  {usage_example}")
    print("\n\n".join(blocks))


def print_no_matches(things: str, query: str | None = None, *, json_format: bool = False) -> None:
    """Say that a list is empty; `[]` in JSON."""
    matching = f" match '{query}'" if query else " found"
    print("[]" if json_format else f"No {things}{matching}.")


def print_rich_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table; off a terminal it is as wide as its content, so that no cell is cut."""
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table

    table = Table(*columns, title=title)
    for row in rows:
        table.add_row(*row)
    console = Console()
    if not console.is_terminal:
        natural = Measurement.get(console, console.options.update(max_width=100_000), table).maximum
        console.width = max(natural, 1)
    console.print(table)


def exit_cleanly_on_config_error(function: Callable[P, R]) -> Callable[P, R]:
    """Let a user's mistake end the process with its one sentence and exit code instead of a traceback."""

    @functools.wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        from nemo_gym.errors import GymError

        try:
            return function(*args, **kwargs)
        except GymError as error:
            if is_verbose():
                raise
            print(f"Error: {error}", file=sys.stderr)
            raise SystemExit(error.exit_code) from None

    return guarded


def is_verbose() -> bool:
    """Whether this process was asked for everything it knows."""
    return any(token.lstrip("+") == "verbose=true" for token in sys.argv[1:])


def flag_is_on(key: str, argv: Sequence[str] | None = None) -> bool:
    """Whether an override on the command line sets a yes/no key to true, told without reading any config."""
    tokens = sys.argv[1:] if argv is None else argv
    return any(token.lstrip("+").lower() == f"{key}=true" for token in tokens)
