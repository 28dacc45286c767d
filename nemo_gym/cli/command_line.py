"""What a person typed, taken apart: the command, its arguments, and the overrides that may stand anywhere."""

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, field

from nemo_gym.cli.commands import COMMANDS, GROUPS, Command
from nemo_gym.cli.overrides import is_override, merged
from nemo_gym.cli.parsers import Parsers, not_yet, option_strings
from nemo_gym.cli.utils import did_you_mean
from nemo_gym.errors import UsageError


@dataclass
class Line:
    """A command line cut at the words that name the command."""

    global_flags: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    overrides: list[str] = field(default_factory=list)
    rest: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return " ".join(self.words)


@dataclass(frozen=True)
class Request:
    """A command and everything given to it."""

    name: str
    command: Command
    args: Namespace
    raw_overrides: list[str]
    verbose: bool

    def overrides(self) -> list[str]:
        """The override list the command runs from. Raises UsageError for a value that can't be meant."""
        words = (self.command.words,) if self.command.words else ()
        flags = (*words, *self.command.flags)
        translated = [token for flag in flags for token in flag.translate_to_hydra(self.args)]
        return merged(translated, self.raw_overrides, verbose=self.verbose)


def cut(argv: Sequence[str]) -> Line:
    """Find the words that name a command; flags and overrides before them are kept apart, all after them is `rest`."""
    line = Line()
    for position, token in enumerate(argv):
        if _is_complete(line.words):
            line.rest = list(argv[position:])
            break
        if is_override(token):
            line.overrides.append(token)
        elif token.startswith("-"):
            line.global_flags.append(token)
        else:
            line.words.append(token)
    return line


def _is_complete(words: Sequence[str]) -> bool:
    if not words:
        return False
    return len(words) == 2 or words[0] in COMMANDS or words[0] not in GROUPS


def check_words(parsers: Parsers, line: Line) -> None:
    """End with a usage error when the words name no command."""
    group, *after = [*line.words, *line.rest]
    command = after[0] if after else None
    sentence = not_yet(group, command)
    if sentence:
        raise UsageError(sentence)
    if group in COMMANDS:
        return
    if group not in GROUPS:
        parsers.fail_on_word(parsers.root, "command", group, [*GROUPS, *(name for name in COMMANDS if " " not in name)])
    if len(line.words) == 2 and line.name not in COMMANDS:
        known = [name.partition(" ")[2] for name in COMMANDS if name.startswith(f"{group} ")]
        parsers.fail_on_word(parsers.groups[group], f"command of `gym {group}`", line.words[1], known)


def parse(parsers: Parsers, line: Line) -> Request:
    """Read the arguments of a command that exists. Ends with a usage error where they are wrong."""
    name, command, parser = line.name, COMMANDS[line.name], parsers.commands[line.name]
    global_args, unknown = parsers.root.parse_known_args(line.global_flags)
    if unknown:
        parsers.fail_on_flags("", unknown)
    args, extras = parser.parse_known_args(line.rest)
    words = [*(getattr(args, command.words.dest) if command.words else ()), *extras]
    flags = [token for token in words if token.startswith("-")]
    if flags:
        parsers.fail_on_flags(name, flags)
    raw = [*line.overrides, *(token for token in words if is_override(token))]
    names = [token for token in words if not is_override(token)]
    limit = command.words.limit if command.words else 0
    if len(names) > limit:
        stray = names[limit]
        parser.error(f"unexpected argument {stray!r}.{_flag_meant_by(stray, option_strings(parser))}")
    for word in names:
        if command.words and (refusal := command.words.refusal(word)):
            if f"--{word}" in option_strings(parser):
                refusal = f"unexpected argument {word!r}.{_flag_meant_by(word, option_strings(parser))}"
            else:
                refusal += _meant_by(word, option_strings(parser))
            parser.error(refusal)
    if command.words:
        setattr(args, command.words.dest, names if limit > 1 else names[0] if names else None)
    if global_args.root_json:
        if not hasattr(args, "json"):
            parser.error(f"--json is for --version and for commands that report; `gym {name}` prints no JSON.")
        args.json = True
    return Request(
        name, command, args, raw, bool(getattr(global_args, "verbose", False) or getattr(args, "verbose", False))
    )


def _meant_by(word: str, flags: Sequence[str]) -> str:
    """The component a word names, or the flag it is nearly: what is like many flags is meant for none."""
    from nemo_gym.config.selectors import selection_of

    meant = selection_of(word)
    return f" Did you mean `{meant}`?" if meant else did_you_mean(f"--{word}", flags, cutoff=0.8)


def _flag_meant_by(word: str, flags: Sequence[str]) -> str:
    flag = f"--{word}"
    return f" Did you mean `{flag}`?" if flag in flags else did_you_mean(flag, flags)
