"""Where this process tells others of its user which requests it is answering: a socket in the run's folder."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from pathlib import Path

from nemo_gym.config.handover import RUN_DIR_ENV, TABLES_FOLDER_NAME
from nemo_gym.serve.control_socket import listen, serve_on
from nemo_gym.serve.in_flight import table
from nemo_gym.serve.loop_lag import watch_loop_lag
from nemo_gym.serve.pulse import Pulse

_opening: set[asyncio.Task[None]] = set()
_open: list[asyncio.Server] = []


def open_table_socket() -> None:
    """Answer at `<run folder>/tables/<pid>.sock` in the running loop; does nothing outside of a run."""
    run_directory = os.environ.get(RUN_DIR_ENV)
    if not run_directory:
        return
    watch_loop_lag()
    folder = Path(run_directory) / TABLES_FOLDER_NAME
    with contextlib.suppress(OSError):  # a table nobody can read is no reason not to serve
        bound = listen(folder, f"{os.getpid()}.sock")
        _opening.add(asyncio.get_running_loop().create_task(_answer_at(bound)))
    with contextlib.suppress(OSError, ValueError):
        Pulse(folder).start()


async def _answer_at(bound: socket.socket) -> None:
    try:
        _open.append(await serve_on(bound, table.answer))
    except OSError as error:
        bound.close()
        print(f"`gym ps` can't ask this process: {error}", file=sys.stderr)
