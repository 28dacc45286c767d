"""Every command of `gym`, as data: what it runs, what it says about itself, which flags it takes."""

from nemo_gym.cli.commands.command import Command
from nemo_gym.cli.commands.dataset import DATASET
from nemo_gym.cli.commands.environments import ENVIRONMENTS
from nemo_gym.cli.commands.evaluation import EVALUATION
from nemo_gym.cli.commands.listing import LISTING
from nemo_gym.cli.commands.servers import SERVERS, WATCHING
from nemo_gym.cli.commands.submission import JOBS, SUBMIT

__all__ = ["COMMANDS", "GROUPS", "NOT_YET", "NOT_YET_FLAGS", "VERSION_TARGET", "Command"]

GROUPS = {
    "list": "list what can be run, and what with",
    "dataset": "prepare data",
    "env": "start, stop and inspect environments",
    "eval": "run evaluations and read their results",
    "jobs": "follow what `gym eval submit` started",
    "dev": "work on Gym itself",
}

VERSION_TARGET = "nemo_gym.cli.general:version"

COMMANDS = {
    **LISTING,
    **DATASET,
    **ENVIRONMENTS,
    **SERVERS,
    **EVALUATION,
    **SUBMIT,
    **JOBS,
    **WATCHING,
    "dev test": Command("nemo_gym.cli.dev:dev_test", "run Gym's own tests"),
}

NOT_YET = {
    "dataset": ("upload", "download", "rm", "migrate"),
    "eval": ("health-check", "export", "reverify", "compare"),
}
"""Commands and whole groups of NeMo Gym 0.7 that this version does not have yet."""

NOT_YET_FLAGS: dict[str, tuple[str, ...]] = {}
"""Flags of commands this version has, for what it does not do yet."""
