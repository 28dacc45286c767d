"""Runs pieces of Python one after the other in one interpreter; a script of the standard library alone.

Lives in the jail with the code. Requests are JSON lines on stdin, answers JSON lines on stdout: first
`{"builtins", "one_namespace"}`, then `{"imports"}`, modules by the name they get, and `{"code", "seconds",
"max_characters"}`.
"""

from __future__ import annotations

import ast
import builtins
import ctypes
import importlib
import io
import json
import os
import signal
import sys
from contextlib import redirect_stderr, redirect_stdout, suppress
from types import ModuleType
from typing import Any

_PR_SET_DUMPABLE = 4
_AGAIN_SECONDS = 0.2
_STATEMENTS = ("print", "import", "from", "def", "class", "if", "for", "while", "try", "with")
OUT_OF_TIME = "code timed-out"


class OutOfTime(BaseException):
    """Not an Exception, so that code that expects those doesn't go on."""


class Written(io.StringIO):
    """Keeps the first `limit` characters that are written to it."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._room = limit

    def write(self, text: str) -> int:
        kept = text[: self._room]
        self._room -= len(kept)
        super().write(kept)
        return len(text)


class Session:
    """What was defined so far, and how the next piece is run."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.one_namespace: bool = settings["one_namespace"]
        main = ModuleType("__main__")
        sys.modules["__main__"] = main
        self.globals = vars(main)
        names = settings["builtins"]
        self.globals["__builtins__"] = builtins if names is None else {name: getattr(builtins, name) for name in names}
        self.locals = self.globals if self.one_namespace else {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if "imports" in request:
            return self.import_modules(request["imports"])
        return self.run(request["code"], request["seconds"], request["max_characters"])

    def run(self, code: str, seconds: float, max_characters: int) -> dict[str, Any]:
        """What came of a piece: its output and the value of its last line, or the text of its error."""
        stdout, stderr = Written(max_characters), Written(max_characters)
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_SECONDS)
                with redirect_stdout(stdout), redirect_stderr(stderr):
                    value = self._last_value_once(code) if self.one_namespace else self._last_value_again(code)
                    text = None if value is None else str(value)[:max_characters]
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except OutOfTime:
            return {"error": OUT_OF_TIME}
        except BaseException as error:
            return {"error": describe(error, max_characters)}
        return {"stdout": stdout.getvalue(), "stderr": stderr.getvalue(), "value": text}

    def _last_value_again(self, code: str) -> Any:
        """All of it is run; then its last line, where that is an expression, once more for its value."""
        exec(compile(code, "<code>", "exec"), self.globals, self.locals)
        last = code.strip().split("\n")[-1].strip()
        if not last or last.startswith(_STATEMENTS):
            return None
        with suppress(Exception):
            return eval(compile(last, "<code>", "eval"), self.globals, self.locals)
        return None

    def _last_value_once(self, code: str) -> Any:
        tree = ast.parse(code)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "<code>", "exec"), self.globals)
        if not isinstance(last, ast.Expr):
            return None
        return eval(compile(ast.Expression(last.value), "<code>", "eval"), self.globals)

    def import_modules(self, names: dict[str, str]) -> dict[str, Any]:
        """What can't be imported is left out: code that wants it will tell."""
        for name, module in names.items():
            with suppress(Exception):
                self.globals.setdefault(name, importlib.import_module(module))
        return {}


def describe(error: BaseException, max_characters: int) -> str:
    """Its text, or what kind it is where it has none to give."""
    kind = type(error).__name__
    try:
        return str(error)[:max_characters] or kind
    except BaseException:
        return kind


def main() -> None:
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)  # what is printed past `sys.stdout` is no answer
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)

    def ring(*_: Any) -> None:
        raise OutOfTime

    signal.signal(signal.SIGALRM, ring)
    session: Session | None = None
    for line in requests:
        request, answer = json.loads(line), {}
        signal.signal(signal.SIGALRM, ring)
        if session is None:
            session = Session(request)
        else:
            answer = session.answer(request)
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


if __name__ == "__main__":
    main()
