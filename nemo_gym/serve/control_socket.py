"""Asking a process of the same user something over a unix socket: one JSON line there, one JSON line back.

A request is `{"v": 1, "op": <name>, …arguments}`; an answer has `ok`, and `result` or `error` (`code`, `message`).
Operations and arguments nobody knows are refused by name, so that either side may be the newer one.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from nemo_gym.errors import GymError

if TYPE_CHECKING:
    import asyncio

VERSION = 1
LONGEST_REQUEST_BYTES = 1 << 16
LONGEST_ANSWER_BYTES = 64 << 20
BACKLOG = 64
_LONGEST_PATH_BYTES = 100
"""The kernel takes 107 on Linux and 103 on macOS."""
_REQUEST_SECONDS = 2.0

Answer: TypeAlias = Callable[[str, Mapping[str, Any]], Any]
"""What an operation with its arguments results in: something JSON can say. Raises RefusedError."""


class NoAnswerError(GymError):
    """Nobody listens there, or nothing was said in time; `is_listening` tells which."""

    def __init__(self, message: str, *, is_listening: bool) -> None:
        super().__init__(message)
        self.is_listening = is_listening


class RefusedError(GymError):
    """The other side understood and doesn't do it; `code` is for programs."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def listen(directory: Path, name: str) -> socket.socket:
    """A listening socket of that name in a folder, for this user only; what was there before is replaced."""
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(FileNotFoundError):
            (directory / name).unlink()
        with _short_path(directory, name) as path:
            bound.bind(path)
        (directory / name).chmod(0o600)
        bound.listen(BACKLOG)
    except BaseException:
        bound.close()
        raise
    return bound


def ask(directory: Path, name: str, op: str, *, seconds: float = 1.0, **arguments: Any) -> Any:
    """The result of an operation. Raises NoAnswerError after `seconds` at the latest, RefusedError."""
    deadline = time.monotonic() + seconds
    line = json.dumps({"v": VERSION, "op": op, **arguments}).encode() + b"\n"
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as client:
        try:
            client.settimeout(seconds)
            with _short_path(directory, name) as path:
                client.connect(path)
            client.sendall(line)
            text = _read_line(client, deadline)
        except (FileNotFoundError, ConnectionRefusedError) as error:
            raise NoAnswerError(f"Nobody listens at {directory / name}.", is_listening=False) from error
        except OSError as error:
            raise NoAnswerError(f"No answer from {directory / name}.", is_listening=True) from error
    return _result_of(text, directory / name)


def answer_line(line: bytes, answer: Answer) -> bytes:
    """The answering line to a line that was asked; never raises for what somebody else sent."""
    try:
        request = json.loads(line)
        op = request.pop("op")
        if not isinstance(op, str) or request.pop("v", VERSION) != VERSION:
            raise RefusedError("version", f"This process speaks version {VERSION}.")
        said = {"v": VERSION, "ok": True, "result": answer(op, request)}
    except RefusedError as error:
        said = _refusal(error.code, str(error))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        said = _refusal("malformed", f"The request can't be read ({type(error).__name__}).")
    return json.dumps(said).encode() + b"\n"


def unknown_operation(op: str, known: Iterable[str]) -> RefusedError:
    return RefusedError("unknown_operation", f"There is no operation {op!r}; there are: {', '.join(known)}.")


def is_own_peer(connection: socket.socket) -> bool:
    """Whether this user, or root, is at the other end; where the system can't tell, the folder's mode has to do."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", credentials)[1] in (os.getuid(), 0)


async def serve_on(bound: socket.socket, answer: Answer) -> asyncio.Server:
    """Answer in the running loop until the result is closed."""
    import asyncio

    async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, TimeoutError):  # whoever asked is gone, or asks too much
            if is_own_peer(writer.get_extra_info("socket")):
                async with asyncio.timeout(_REQUEST_SECONDS):
                    line = await reader.readline()
                    writer.write(answer_line(line, answer))
                    await writer.drain()
        writer.close()

    # From 3.13 on asyncio looks for the file of a socket, to remove it in the end; a short path may be gone by then.
    left: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
    return await asyncio.start_unix_server(exchange, sock=bound, limit=LONGEST_REQUEST_BYTES, **left)


def serve_one(bound: socket.socket, answer: Answer) -> None:
    """Accept one connection and answer it, in this thread. Raises OSError when the socket is closed."""
    connection, _ = bound.accept()
    with contextlib.closing(connection), contextlib.suppress(OSError):
        if is_own_peer(connection):
            connection.settimeout(_REQUEST_SECONDS)
            line = _read_line(connection, time.monotonic() + _REQUEST_SECONDS, LONGEST_REQUEST_BYTES)
            connection.sendall(answer_line(line, answer))


def _read_line(connection: socket.socket, deadline: float, longest: int = LONGEST_ANSWER_BYTES) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while not (chunks and chunks[-1].endswith(b"\n")):
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        chunk = connection.recv(1 << 16)
        size += len(chunk)
        if not chunk or size > longest:
            raise ConnectionResetError
        chunks.append(chunk)
    return b"".join(chunks)


def _result_of(text: bytes, path: Path) -> Any:
    try:
        said = json.loads(text)
        if said["ok"]:
            return said["result"]
        raise RefusedError(str(said["error"]["code"]), str(said["error"]["message"]))
    except (ValueError, KeyError, TypeError) as error:
        raise NoAnswerError(f"{path} answers something else than expected.", is_listening=True) from error


def _refusal(code: str, message: str) -> dict[str, Any]:
    return {"v": VERSION, "ok": False, "error": {"code": code, "message": message}}


@contextmanager
def _short_path(directory: Path, name: str) -> Iterator[str]:
    """A path of the socket that fits into an address, however long its folder's is."""
    path = str(directory / name)
    if len(os.fsencode(path)) <= _LONGEST_PATH_BYTES or sys.platform != "linux":
        yield path
        return
    folder = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{name}"
    finally:
        os.close(folder)
