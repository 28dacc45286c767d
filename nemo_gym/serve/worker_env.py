"""How a process knows that it is one of several that serve one socket: upstream's three variables."""

from __future__ import annotations

import os

IS_NEMO_GYM_FASTAPI_WORKER_KEY_NAME = "IS_NEMO_GYM_FASTAPI_WORKER"
IS_NEMO_GYM_FASTAPI_ENTRYPOINT_KEY_NAME = "IS_NEMO_GYM_FASTAPI_ENTRYPOINT"
NEMO_GYM_FASTAPI_NUM_WORKERS_KEY_NAME = "NEMO_GYM_FASTAPI_NUM_WORKERS"


def is_nemo_gym_fastapi_worker() -> bool:
    """Whether this process is one of several that serve one socket."""
    return os.environ.get(IS_NEMO_GYM_FASTAPI_WORKER_KEY_NAME) == "1"


def set_is_nemo_gym_fastapi_worker() -> None:
    """Make this process and its children workers."""
    os.environ[IS_NEMO_GYM_FASTAPI_WORKER_KEY_NAME] = "1"


def is_nemo_gym_fastapi_entrypoint(file: str) -> bool:
    """Whether this process is a worker whose server is defined in `file`."""
    entrypoint = os.environ.get(IS_NEMO_GYM_FASTAPI_ENTRYPOINT_KEY_NAME)
    return is_nemo_gym_fastapi_worker() and entrypoint is not None and file.endswith(entrypoint)


def set_is_nemo_gym_fastapi_entrypoint(file: str) -> None:
    """Say which file, relative to the component's folder, defines the workers' server."""
    os.environ[IS_NEMO_GYM_FASTAPI_ENTRYPOINT_KEY_NAME] = file


def get_nemo_gym_fastapi_num_workers() -> int:
    """How many processes serve this socket; 1 when nobody said."""
    return int(os.environ.get(NEMO_GYM_FASTAPI_NUM_WORKERS_KEY_NAME) or 1)


def set_nemo_gym_fastapi_num_workers(num_workers: int) -> None:
    """Say how many processes serve this socket."""
    os.environ[NEMO_GYM_FASTAPI_NUM_WORKERS_KEY_NAME] = str(num_workers)


def announce_workers(entrypoint: str, count: int) -> None:
    """Say all three at once."""
    set_is_nemo_gym_fastapi_worker()
    set_is_nemo_gym_fastapi_entrypoint(entrypoint)
    set_nemo_gym_fastapi_num_workers(count)
