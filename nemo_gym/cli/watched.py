"""Running a program that tells how far it is, and ending it when it tells nothing any more."""

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nemo_gym.audit.progress import DESCRIPTOR_ENV

Said = dict[str, Any]
_LOOK_EVERY_S = 0.2


@dataclass(frozen=True)
class Ended:
    """How a program ended: with its code, or by being stopped after it had told nothing for too long."""

    code: int
    is_stuck: bool

    def __str__(self) -> str:
        return f"was ended by the signal {-self.code}" if self.code < 0 else f"ended with {self.code}"


def _nothing() -> None:
    return


def watched(
    command: Sequence[str],
    heard: Callable[[Said], None],
    *,
    patience_s: float,
    env: Mapping[str, str] | None = None,
    meanwhile: Callable[[], None] = _nothing,
) -> Ended:
    """Run a program, hear what it tells, and kill it `patience_s` after it was last heard, once it has begun to tell.

    It prints to standard error only. An interrupt kills it too, and so does what `heard` raises. `meanwhile` is called
    a few times a second, whether anything is heard or not.
    """
    reading, writing = os.pipe()
    environment = {**(os.environ if env is None else env), DESCRIPTOR_ENV: str(writing)}
    try:
        program = subprocess.Popen(command, pass_fds=[writing], env=environment, stdout=sys.stderr)
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    try:
        return _heard_out(program, reading, heard, patience_s, meanwhile)
    finally:
        program.kill()
        program.wait()
        os.close(reading)


def _heard_out(
    program: "subprocess.Popen[bytes]",
    reading: int,
    heard: Callable[[Said], None],
    patience: float,
    meanwhile: Callable[[], None],
) -> Ended:
    rest, last = b"", float("inf")
    with selectors.DefaultSelector() as selector:
        selector.register(reading, selectors.EVENT_READ)
        while True:
            code = program.poll()  # before what it told last is read
            while selector.select(0 if code is not None else _LOOK_EVERY_S):
                if not (chunk := os.read(reading, 65536)):
                    selector.unregister(reading)
                    break
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    last = time.monotonic()
                    heard(json.loads(line))
            meanwhile()
            if code is not None:
                return Ended(code, is_stuck=False)
            if time.monotonic() - last > patience:
                return Ended(0, is_stuck=True)
