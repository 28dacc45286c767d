"""Letting the run's user ask, while rollouts are collected from its servers, how that is going (`gym ps`)."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from nemo_gym.config.handover import COLLECTORS_FOLDER_NAME, run_directory
from nemo_gym.config.keys import DEFAULT_HEAD_SERVER_PORT, HEAD_SERVER_KEY_NAME
from nemo_gym.rollouts.in_flight import snapshots
from nemo_gym.serve.control_socket import listen, serve_one, unknown_operation


@contextmanager
def announced(config: Mapping[Any, Any]) -> Iterator[None]:
    """Inside, `<run folder>/collectors/<pid>.sock` answers `rollouts`; where the run has no folder here, nothing does.

    `config` is that of the servers.
    """
    head = config.get(HEAD_SERVER_KEY_NAME) or {}
    folder = run_directory(int(head.get("port") or DEFAULT_HEAD_SERVER_PORT)) / COLLECTORS_FOLDER_NAME
    name = f"{os.getpid()}.sock"
    try:
        bound = listen(folder, name)
    except OSError:
        yield
        return
    thread = threading.Thread(target=_answer_all, args=(bound,), name="gym-rollouts", daemon=True)
    thread.start()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            (folder / name).unlink()
        with contextlib.suppress(OSError):
            bound.shutdown(socket.SHUT_RDWR)
        thread.join()
        bound.close()


def _answer_all(bound: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            serve_one(bound, _answer)


def _answer(op: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    if op != "rollouts":
        raise unknown_operation(op, ["rollouts"])
    limit = int(arguments.get("limit", 100))
    tables = snapshots()
    return {"pid": os.getpid(), "tables": [{**table, "entries": table["entries"][:limit]} for table in tables]}
