"""`gym`: parse the line, turn flags into overrides, enter the command, and end with the right exit code."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from nemo_gym.cli.command_line import Request, check_words, cut, parse
from nemo_gym.cli.commands import COMMANDS, GROUPS, VERSION_TARGET, Command
from nemo_gym.cli.dispatch import dispatch, typed
from nemo_gym.cli.flags import Flag, absolute_directories
from nemo_gym.cli.one_file import roots_of
from nemo_gym.cli.parsers import Parsers, build_parser, build_parsers
from nemo_gym.cli.reporting import exit_code_for, quiet_broken_pipe
from nemo_gym.cli.streams import Lost, Stream, dependable, told_in_exit_code
from nemo_gym.cli.utils import flag_is_on

__all__ = ["COMMANDS", "GROUPS", "VERSION_TARGET", "Command", "Flag", "build_parser", "dispatch", "main"]


def main() -> None:
    """Run the command line in `sys.argv`. Exits as decided by docs/exit codes: 0, 1, 2, 75 or 130."""
    argv = typed[:] = sys.argv[1:]
    with dependable() as out, quiet_broken_pipe():
        if out is None:
            _main(argv, None)
            return
        with told_in_exit_code(out):
            _main(argv, out)


def _main(argv: list[str], out: Stream | None) -> None:
    verbose = any(token in ("-v", "--verbose") for token in argv)
    request: Request | None = None
    try:
        request = _read(build_parsers(), argv)
        if request is not None:
            if out is not None:
                out.is_all = request.command.only_prints
            _run(request)
    except Lost:
        raise
    except Exception as error:
        code = exit_code_for(error, request, verbose=verbose)
        if code is None:
            raise
        raise SystemExit(code) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def _read(parsers: Parsers, argv: list[str]) -> Request | None:
    """The request a line makes; None when it was answered by help or versions already."""
    line = cut(argv)
    asked, _ = parsers.root.parse_known_args([flag for flag in line.global_flags if flag not in ("-h", "--help")])
    if asked.version:
        dispatch(VERSION_TARGET, ["+json=true"] if asked.root_json or "--json" in line.rest else line.overrides)
        return None
    wants_help = any(flag in ("-h", "--help") for flag in line.global_flags)
    if line.words:
        check_words(parsers, line)
    if len(line.words) < 2 and line.name not in COMMANDS:
        if not wants_help:
            _, unknown = parsers.root.parse_known_args(line.global_flags)
            if unknown:
                parsers.fail_on_flags("", unknown)
        (parsers.groups[line.words[0]] if line.words else parsers.root).print_help()
        raise SystemExit(0 if wants_help else 1)
    if wants_help:
        parsers.commands[line.name].print_help()
        raise SystemExit(0)
    request = parse(parsers, line)
    if any(flag_is_on(key, request.raw_overrides) for key in ("help", "h")):
        _print_config_help(parsers, request)
        raise SystemExit(0)
    return request


def _print_config_help(parsers: Parsers, request: Request) -> None:
    """What the command takes from the config; its ordinary help where it has no model of that."""
    module, _, name = request.command.config.partition(":")
    if name:
        getattr(importlib.import_module(module), name).print_help()
    else:
        parsers.commands[request.name].print_help()


def _run(request: Request) -> None:
    if request.verbose:
        _log_everything()
    searched = [*(getattr(request.args, "search_dir", None) or []), *roots_of(request.command.words, request.args)]
    with _search_dirs(searched):
        overrides = request.overrides()
        target = request.command.target
        if callable(target):
            target(request.args, overrides)
        else:
            dispatch(target, overrides)


def _log_everything() -> None:
    import logging

    logging.basicConfig(level=logging.DEBUG)
    logging.getLogger().setLevel(logging.DEBUG)


@contextmanager
def _search_dirs(folders: list[str]) -> Iterator[None]:
    """Put folders before all others that components are found in, for this process and those it starts."""
    if not folders:
        yield
        return
    from nemo_gym.config.roots import also_searched, augment_sys_path

    with also_searched(first=absolute_directories(folders)):
        augment_sys_path()
        yield


if __name__ == "__main__":
    main()
