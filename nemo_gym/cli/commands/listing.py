"""`gym list …` and `gym search`."""

from argparse import Namespace

from nemo_gym.cli.commands.command import Command
from nemo_gym.cli.commands.flag_sets import LISTED, ONE_OF_THEM
from nemo_gym.cli.dispatch import dispatch
from nemo_gym.cli.flags import TextFlag, Words


def _list_benchmarks(args: Namespace, overrides: list[str]) -> None:
    dispatch("nemo_gym.cli.catalog:list_environments", ["+catalog_kind=benchmark", *overrides])


def _search(args: Namespace, overrides: list[str]) -> None:
    from nemo_gym.cli.search import search

    search(args.words, overrides)


LISTING = {
    "list environments": Command(
        "nemo_gym.cli.catalog:list_environments",
        "list what can be run: environments, benchmarks, and resources servers with an agent",
        (
            *LISTED,
            TextFlag(
                names=("--kind",), key="catalog_kind", choices=("environment", "benchmark"), help="only of a kind"
            ),
            TextFlag(names=("--domain",), key="domain", metavar="DOMAIN", help="only of a domain"),
            TextFlag(names=("--modality",), key="modality", metavar="MODALITY", help="only of a modality"),
            TextFlag(names=("--licensing",), key="licensing", metavar="LICENSE", help="only with a license"),
            TextFlag(
                names=("--status",),
                key="status",
                choices=("experimental", "no-manifest", "invalid"),
                help="only of a status",
            ),
            TextFlag(
                names=("--lifecycle",),
                key="lifecycle",
                choices=("active", "deprecated"),
                help="only active ones or not",
            ),
        ),
        words=ONE_OF_THEM,
        example="gym list environments --domain math",
        only_prints=True,
    ),
    "list benchmarks": Command(_list_benchmarks, "list the benchmarks", LISTED, words=ONE_OF_THEM, only_prints=True),
    "list resources-servers": Command(
        "nemo_gym.cli.catalog:list_resources_servers",
        "list the resources servers",
        LISTED,
        words=ONE_OF_THEM,
        only_prints=True,
    ),
    "list agents": Command(
        "nemo_gym.cli.catalog:list_agents", "list the agents", LISTED, words=ONE_OF_THEM, only_prints=True
    ),
    "list models": Command(
        "nemo_gym.cli.catalog:list_models", "list the model servers", LISTED, words=ONE_OF_THEM, only_prints=True
    ),
    "search": Command(
        _search,
        "find environments, benchmarks, agents, models or resources servers by a word",
        LISTED,
        words=Words(
            names=("words",),
            metavar="QUERY",
            help="what to look for; before it may stand where: environments (all that can be run), benchmarks, agents, "
            "models or resources-servers",
            limit=2,
        ),
        example="gym search agents tool",
        only_prints=True,
    ),
}
