"""Runs one Python program over many inputs, each in a fork of its own; a script of the standard library alone.

Lives in the jail with the program, and knows no expected output. A request is a JSON line on stdin, its answer one on
stdout: first `{"source", "prelude"}`, then `{"stdin"}` or `{"call", "arguments"}`, with `seconds` and `max_bytes`.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import select
import signal
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from types import CodeType, ModuleType
from typing import Any

_PR_SET_DUMPABLE = 4
RAISED = 70


class Driver:
    """Holds the compiled program, and what its prelude has imported."""

    def __init__(self) -> None:
        self.code: CodeType | None = None
        self.namespace: dict[str, Any] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if "source" in request:
            return self.load(request["source"], request["prelude"])
        if self.code is None:
            return {"error": "no program"}
        return run_case(self.code, self.namespace, request)

    def load(self, source: str, prelude: str) -> dict[str, Any]:
        sys.modules["__main__"] = ModuleType("__main__")  # what a program finds there is its own
        self.namespace = vars(sys.modules["__main__"])
        self.namespace["__builtins__"] = __builtins__
        try:
            exec(compile(prelude, "<prelude>", "exec"), self.namespace)
            self.code = compile(source, "main.py", "exec")
        except BaseException as error:
            return {"error": "".join(traceback.format_exception_only(error)), "kind": type(error).__name__}
        return {}


def run_case(code: CodeType, namespace: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    """Fork, and collect what the fork prints and returns until it ends or its time is over."""
    stdout, stderr, value = os.pipe(), os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        stdin = file_of(request.get("stdin") or "")
        for source, target in ((stdin, 0), (stdout[1], 1), (stderr[1], 2), (value[1], 3)):
            os.dup2(source, target)
        os.closerange(4, 1 << 16)
        live(code, namespace, request)
    for _, sink in (stdout, stderr, value):
        os.close(sink)
    collected = collect([stdout[0], stderr[0], value[0]], time.monotonic() + request["seconds"], request["max_bytes"])
    for source, _ in (stdout, stderr, value):
        os.close(source)
    ended_for = collected.pop()
    status = None if ended_for else wait_for(pid, request["seconds"])
    if status is None:
        ended_for = ended_for or b"wall"
    with suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
    if status is None:
        _, status = os.waitpid(pid, 0)
    texts = [text.decode("utf-8", "replace") for text in collected]
    told = dict(zip(("stdout", "stderr", "value"), texts, strict=True))
    return {**told, "ended_for": ended_for.decode(), "status": status}


def wait_for(pid: int, seconds: float) -> int | None:
    """The status of a case that has closed its output; None if it still lives after its time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.001)
    return None


def collect(sources: list[int], end: float, max_bytes: int) -> list[bytes]:
    """What is written to each, and last why that was not waited for to the end, if it wasn't."""
    texts = {source: bytearray() for source in sources}
    open_ones = set(sources)
    reason = b""
    while open_ones and not reason:
        ready, _, _ = select.select(list(open_ones), [], [], max(0.0, end - time.monotonic()))
        for source in ready:
            chunk = os.read(source, 65536)
            texts[source] += chunk
            if not chunk:
                open_ones.discard(source)
        if any(len(text) > max_bytes for text in texts.values()):
            reason = b"output"
        elif not ready or time.monotonic() > end:
            reason = b"wall"
    return [bytes(texts[source][:max_bytes]) for source in sources] + [reason]


def live(code: CodeType, namespace: dict[str, Any], request: dict[str, Any]) -> None:
    """The life of a case; it never returns."""
    sys.stdin = open(0, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]
    sys.argv = ["main.py"]
    code_of_exit = 0
    try:
        exec(code, namespace)
        if "call" in request:
            answer = call(namespace, request["call"], request["arguments"])
            os.write(3, as_json(answer))
    except SystemExit as error:
        code_of_exit = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    except BaseException as error:
        code_of_exit = RAISED
        below = error.__traceback__
        while below is not None and below.tb_frame.f_code.co_filename == __file__:  # none of the program's
            below = below.tb_next
        traceback.print_exception(type(error), error, below)
    finish(code_of_exit)


def call(namespace: dict[str, Any], name: str, arguments: list[Any]) -> Any:
    """A method of `Solution`, where the program has such a class, else a function."""
    owner = namespace.get("Solution")
    function = getattr(owner(), name) if owner is not None else namespace[name]
    return function(*arguments)


def as_json(answer: Any) -> bytes:
    """As JSON, with numbers and arrays of numpy as plain ones; nothing for what JSON has no words for."""
    try:
        return json.dumps(answer, default=lambda value: value.tolist()).encode()
    except (AttributeError, TypeError, ValueError, RecursionError):
        return b""


def finish(code_of_exit: int) -> None:
    """What an interpreter does at its end, short of tearing itself down."""
    try:
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except BaseException:
        code_of_exit = code_of_exit or 1
    os._exit(code_of_exit & 255)


def file_of(text: str) -> int:
    descriptor, path = tempfile.mkstemp()
    os.unlink(path)  # noqa: PTH108
    os.write(descriptor, text.encode("utf-8", "surrogatepass"))
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def main() -> None:
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)  # what a prelude prints is no answer
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    driver = Driver()
    for line in requests:
        answers.write(json.dumps(driver.answer(json.loads(line))).encode() + b"\n")
        answers.flush()


if __name__ == "__main__":
    main()
