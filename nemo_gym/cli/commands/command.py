"""What a command of `gym` is."""

from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass

from nemo_gym.cli.flags import Flag, Words


@dataclass(frozen=True)
class Command:
    """`target` is `"module:function"`, called without arguments, or a callable that is given `(args, overrides)`.

    `config` is `"module:class"` of the model that reads the command's part of the config, for `+help=true`. A command
    that `only_prints` ends when nobody takes what it prints.
    """

    target: str | Callable[[Namespace, list[str]], None]
    summary: str
    flags: tuple[Flag, ...] = ()
    words: Words | None = None
    example: str = ""
    config: str = ""
    only_prints: bool = False
