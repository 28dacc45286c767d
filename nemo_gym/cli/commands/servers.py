"""`gym env …` and `gym ps`: servers that run."""

from argparse import Namespace

from nemo_gym.cli.commands.command import Command
from nemo_gym.cli.commands.flag_sets import ALLOW_PAIRING, FILE, JSON, PORT, SEARCH_DIR, SELECT, START
from nemo_gym.cli.dispatch import dispatch
from nemo_gym.cli.flags import SwitchFlag, Words


def _start(args: Namespace, overrides: list[str]) -> None:
    dispatch("nemo_gym.cli.env:start_detached" if args.detach else "nemo_gym.cli.env:run", overrides)


def _stop(args: Namespace, overrides: list[str]) -> None:
    from nemo_gym.cli.runs import stop

    stop(overrides, everything=args.all)


def _ps(args: Namespace, overrides: list[str]) -> None:
    from nemo_gym.cli.ps import ps

    ps(overrides, as_json=args.json, watch=args.watch)


def _restart(args: Namespace, overrides: list[str]) -> None:
    from nemo_gym.cli.ps import restart

    restart(args.name, overrides)


def _logs(args: Namespace, overrides: list[str]) -> None:
    from nemo_gym.cli.runs import logs

    logs(args.name, overrides, follow=args.follow)


SERVERS = {
    "env start": Command(
        _start,
        "start the servers of an environment and keep them running",
        (*START, SwitchFlag(names=("--detach",), help="return when they are ready and leave them running")),
        words=FILE,
        example="gym env start --resources-server mcqa --model-type openai_model",
    ),
    "env prefetch": Command(
        "nemo_gym.cli.env:prefetch",
        "build the servers' venvs and start nothing",
        (*SELECT, ALLOW_PAIRING, SEARCH_DIR),
        example="gym env prefetch --resources-server mcqa --model-type openai_model",
    ),
    "env status": Command("nemo_gym.cli.env:status", "list the running servers and their health", (JSON,)),
    "env stop": Command(
        _stop,
        "stop running servers",
        (PORT, SwitchFlag(names=("--all",), help="stop every run of this user")),
    ),
    "env restart": Command(
        _restart,
        "start a running server anew, on the address it has",
        (PORT,),
        words=Words(names=("name",), metavar="NAME", help="a server instance, as `gym env status` lists it"),
        example="gym env restart policy_model",
    ),
    "env logs": Command(
        _logs,
        "print what a running server has written",
        (SwitchFlag(names=("--follow", "-f"), help="keep printing what comes"), PORT),
        words=Words(names=("name",), metavar="NAME", help="a server instance, as `gym env status` lists it"),
        example="gym env logs policy_model -f",
        only_prints=True,
    ),
}

WATCHING = {
    "ps": Command(
        _ps,
        "show what a run's servers and rollouts are doing, and why it is stuck",
        (JSON, SwitchFlag(names=("--watch", "-w"), help="show it again every second until Ctrl-C"), PORT),
        example="gym ps --watch",
        only_prints=True,
    ),
}
