"""`gym search [TYPE] QUERY`: a list with a query."""

from collections.abc import Sequence

from nemo_gym.cli.dispatch import dispatch
from nemo_gym.cli.overrides import quoted
from nemo_gym.cli.utils import did_you_mean
from nemo_gym.errors import UsageError

# What each type is listed by, and what chooses it there.
TYPES = {
    "environments": ("list_environments", ()),
    "benchmarks": ("list_environments", ("+catalog_kind=benchmark",)),
    "agents": ("list_agents", ()),
    "models": ("list_models", ()),
    "resources-servers": ("list_resources_servers", ()),
}


def search(words: Sequence[str], overrides: Sequence[str]) -> None:
    """List what matches. One word is always the query; raises UsageError for none, or for a type there is not."""
    if not words and not any(token.lstrip("+").startswith("query=") for token in overrides):
        raise UsageError("say what to look for: gym search QUERY, or gym search TYPE QUERY.")
    kind = words[0] if len(words) > 1 else "environments"
    if kind not in TYPES:
        raise UsageError(f"{kind!r} is not one of {', '.join(TYPES)}.{did_you_mean(kind, TYPES)}")
    function, choice = TYPES[kind]
    query = [f"+query={quoted(words[-1])}"] if words else []
    dispatch(f"nemo_gym.cli.catalog:{function}", [*query, *choice, *overrides])
