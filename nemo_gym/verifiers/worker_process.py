"""A process that calls functions for another one. Run as a script, with the number of an inherited socket.

It imports nothing of ours: what a function needs is found on the search path that comes with the first message.
"""

import os
import pickle
import queue
import resource
import signal
import socket
import struct
import sys
import threading
import traceback
from typing import Any

BEGUN, RETURNED, RAISED, FAILED = b"b", b"r", b"x", b"f"
"""Kinds of answers: the call begins; its value; what it raised, pickled; what went wrong otherwise, as text."""

_SIZE = struct.Struct(">Q")


def send(sock: socket.socket, content: bytes) -> None:
    sock.sendall(_SIZE.pack(len(content)) + content)


def receive(sock: socket.socket) -> bytes:
    """The next message; EOFError when the other end is closed."""
    (size,) = _SIZE.unpack(_exactly(sock, _SIZE.size))
    return _exactly(sock, size)


def _exactly(sock: socket.socket, size: int) -> bytes:
    chunks = bytearray()
    while len(chunks) < size:
        chunk = sock.recv(min(size - len(chunks), 1 << 20))
        if not chunk:
            raise EOFError
        chunks += chunk
    return bytes(chunks)


def main(descriptor: int) -> None:
    """Answer until the other end is closed, also if that happens while a function runs."""
    sock = socket.socket(fileno=descriptor)
    settings: dict[str, Any] = pickle.loads(receive(sock))
    _settle(settings)
    calls: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sock, calls), daemon=True).start()
    while True:
        send(sock, _answer(sock, calls.get(), settings["main_path"]))


def _settle(settings: dict[str, Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # die with the thread that started us
    if (memory := settings["memory_bytes"]) is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    sys.path[:] = settings["path"]


def _listen(sock: socket.socket, calls: "queue.SimpleQueue[bytes]") -> None:
    try:
        while True:
            calls.put(receive(sock))
    except (EOFError, OSError):
        os._exit(0)


def _answer(sock: socket.socket, call: bytes, main_path: str | None) -> bytes:
    try:
        if main_path is not None and b"__main__" in call:
            _become_main(main_path)
        function, args, named = pickle.loads(call)
    except BaseException:
        return FAILED + f"the call can't be made in a process of its own:\n{traceback.format_exc()}".encode()
    send(sock, BEGUN)
    try:
        value = function(*args, **named)
    except BaseException as error:
        return _raised(error)
    try:
        return RETURNED + pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        return FAILED + f"what it returned can't be sent back: {error!r}".encode()


def _raised(error: BaseException) -> bytes:
    text = "".join(traceback.format_exception(error))
    try:
        pickled = pickle.dumps((error, text), pickle.HIGHEST_PROTOCOL)
        pickle.loads(pickled)
    except Exception:
        return FAILED + text.encode(errors="replace")
    return RAISED + pickled


def _become_main(path: str) -> None:
    """Have `__main__` mean what it means in the process that asks: its program, imported and not run."""
    if "__mp_main__" not in sys.modules:
        from multiprocessing import spawn

        spawn.prepare({"init_main_from_path": path})


if __name__ == "__main__":
    main(int(sys.argv[1]))
