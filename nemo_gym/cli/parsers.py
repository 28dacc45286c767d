"""The argument parsers, built from the command table, and what they say to a wrong line."""

import argparse
from argparse import SUPPRESS, Action, ArgumentParser
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from nemo_gym.cli.commands import COMMANDS, GROUPS, NOT_YET, NOT_YET_FLAGS, Command
from nemo_gym.cli.utils import did_you_mean
from nemo_gym.errors import UsageError


class Parser(ArgumentParser):
    """An argument parser that suggests what may have been meant."""

    def _check_value(self, action: Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            hint = did_you_mean(str(value), map(str, action.choices or ()))
            raise argparse.ArgumentError(action, error.message + hint) from None


@dataclass(frozen=True)
class Parsers:
    """The root parser, and those of groups and commands by name (`"env"`, `"env start"`)."""

    root: ArgumentParser
    groups: dict[str, ArgumentParser]
    commands: dict[str, ArgumentParser]

    def fail_on_word(self, parser: ArgumentParser, what: str, word: str, known: Iterable[str]) -> NoReturn:
        """End with a usage error for a mistyped group or command."""
        names = list(known)
        parser.error(f"{word!r} is not a {what} (choose from {', '.join(names)}).{did_you_mean(word, names)}")

    def fail_on_flags(self, name: str, flags: Iterable[str]) -> NoReturn:
        """End with a usage error for flags this command (or `gym` itself) does not take."""
        parser = self.commands.get(name, self.root)
        flags = list(flags)
        later = [flag for flag in flags if flag.partition("=")[0] in NOT_YET_FLAGS.get(name, ())]
        if later:
            raise UsageError(f"`gym {name} {' '.join(later)}` is not available yet in this version.")
        parser.error(" ".join(self._unknown_flag(name, flag.partition("=")[0]) for flag in flags))

    def _unknown_flag(self, name: str, flag: str) -> str:
        hint = did_you_mean(flag, option_strings(self.commands.get(name, self.root)))
        takers = [other for other, parser in self.commands.items() if flag in option_strings(parser) and other != name]
        elsewhere = f" It is a flag of {', '.join(f'`gym {taker}`' for taker in takers[:3])}." if takers else ""
        return f"unknown flag {flag}.{elsewhere or hint}"


def option_strings(parser: ArgumentParser) -> list[str]:
    """Every spelling of every option of a parser."""
    return list(parser._option_string_actions)


def build_parser() -> ArgumentParser:
    """The whole command line as one parser."""
    return build_parsers().root


def build_parsers() -> Parsers:
    """The whole command line: the root parser and every parser below it."""
    root = Parser(prog="gym", description="Evaluate and train LLM agents in environments.")
    root.add_argument("--version", action="store_true", help="print versions of Gym and what it runs on")
    root.add_argument("--json", action="store_true", dest="root_json", help="print JSON, where a command can")
    _add_verbose(root)
    groups: dict[str, ArgumentParser] = {}
    commands: dict[str, ArgumentParser] = {}
    group_actions = root.add_subparsers(dest="group", metavar="command", parser_class=Parser)
    for first_word in dict.fromkeys(name.partition(" ")[0] for name in COMMANDS):
        if first_word not in GROUPS:
            commands[first_word] = _command_parser(group_actions, first_word, COMMANDS[first_word])
            continue
        summary = GROUPS[first_word]
        prog = f"gym {first_word}"
        parser = group_actions.add_parser(first_word, help=summary, description=_sentence(summary), prog=prog)
        _add_verbose(parser)
        groups[first_word] = parser
        actions = parser.add_subparsers(dest="command", metavar="command", parser_class=Parser)
        for name, command in COMMANDS.items():
            if name.startswith(f"{first_word} "):
                commands[name] = _command_parser(actions, name, command)
    return Parsers(root, groups, commands)


def _command_parser(actions: Any, name: str, command: Command) -> ArgumentParser:
    positional = f" [{command.words.metavar}]" if command.words else ""
    parser: ArgumentParser = actions.add_parser(
        name.rpartition(" ")[2],
        help=command.summary,
        description=_sentence(command.summary),
        prog=f"gym {name}",
        usage=f"gym {name}{positional} [options] [+key=value ...]",
        epilog=f"example: {command.example}" if command.example else None,
    )
    if command.words:
        command.words.register(parser)
    for flag in command.flags:
        flag.register(parser)
    _add_verbose(parser)
    return parser


def _add_verbose(parser: ArgumentParser) -> None:
    parser.add_argument(
        "-v", "--verbose", action="store_true", default=SUPPRESS, help="say more, here and in every server"
    )


def _sentence(summary: str) -> str:
    return summary[0].upper() + summary[1:] + "."


def not_yet(group: str, command: str | None) -> str | None:
    """What to say to somebody who types a command of NeMo Gym that this version lacks; None for any other."""
    if group not in NOT_YET:
        return None
    if group in GROUPS and command not in NOT_YET[group]:
        return None
    named = f"gym {group} {command}" if command in NOT_YET[group] else f"gym {group}"
    return f"`{named}` is not available yet in this version."
