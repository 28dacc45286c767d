"""Standard output and standard error that may be closed, full or broken: a command does its work all the same.

What can't be written is dropped. Losing what belongs to standard output shows in the exit code; a notice that nobody
can read changes nothing.
"""

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

BROKEN_PIPE_EXIT_CODE = 141
"""What a shell reports for a program that dies writing to a closed pipe."""
_OUT, _ERR = 1, 2


class Lost(OSError):
    """Standard output takes nothing more, for a command that does nothing but print."""


class Stream(io.FileIO):
    """A descriptor that drops what it can't write from the first failure on, and keeps that failure in `lost`.

    With `is_all` there is nothing else to do for whoever writes: the failure is raised, once, as Lost.
    """

    def __init__(self, number: int, lost: OSError | None = None) -> None:
        super().__init__(number, "w", closefd=False)
        self.is_all = False
        self.lost: OSError | None = None
        self._missing = lost

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        if self.lost is not None:
            return size
        try:
            if self._missing is not None:
                raise self._missing
            return super().write(data)
        except OSError as error:
            self.lost = error
            if self.is_all:
                raise Lost(error.errno, error.strerror) from error
            return size


def _text(stream: Stream, like: TextIO | None) -> io.TextIOWrapper:
    """A text stream over it that writes as the process's own did."""
    if not isinstance(like, io.TextIOWrapper):
        return io.TextIOWrapper(io.BufferedWriter(stream), encoding="utf-8", errors="backslashreplace")
    through = like.write_through
    return io.TextIOWrapper(
        stream if through else io.BufferedWriter(stream),
        encoding=like.encoding,
        errors=like.errors,
        line_buffering=like.line_buffering,
        write_through=through,
    )


@contextmanager
def dependable() -> Iterator[Stream | None]:
    """Inside, the process's standard streams never fail; gives what lies below standard output.

    Streams that somebody has put in place of the process's own are left alone, and None is given.
    """
    if sys.stdout is not sys.__stdout__ or sys.stderr is not sys.__stderr__:
        yield None
        return
    missing = {number: _take_place_of(number) for number in (0, _OUT, _ERR)}
    out, err = Stream(_OUT, missing[_OUT]), Stream(_ERR, missing[_ERR])
    before = (sys.stdout, sys.stderr)
    sys.stdout, sys.stderr = (shown, said) = _text(out, sys.stdout), _text(err, sys.stderr)
    try:
        yield out
    finally:
        out.is_all = False
        for stream in (shown, said):
            stream.flush()
        sys.stdout, sys.stderr = before


def _take_place_of(number: int) -> OSError | None:
    """Give a standard descriptor that is closed a place, so that no file of ours gets it; what writing to it means."""
    try:
        os.fstat(number)
        return None
    except OSError as error:
        null = os.open(os.devnull, os.O_RDWR)
        if null != number:
            os.dup2(null, number)
            os.close(null)
        os.set_inheritable(number, True)
        return OSError(errno.EBADF, error.strerror)


@contextmanager
def told_in_exit_code(out: Stream) -> Iterator[None]:
    """End with an exit code that says so when standard output took less than it was given."""
    code: object = 0
    try:
        yield
        sys.stdout.flush()
    except Lost:
        pass
    except SystemExit as end:
        out.is_all = False
        sys.stdout.flush()
        if out.lost is None:
            raise
        code = end.code
    if out.lost is not None:
        raise SystemExit(_exit_code(out.lost, code))


def _exit_code(lost: OSError, code: object) -> object:
    """That of a command which would have ended with `code`; what was lost is told on standard error."""
    if lost.errno == errno.EPIPE:
        return code or BROKEN_PIPE_EXIT_CODE
    print(f"Error: standard output can't be written: {lost.strerror}.", file=sys.stderr)
    return code or 1
