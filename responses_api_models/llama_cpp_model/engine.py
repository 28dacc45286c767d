"""llama.cpp in this process, behind an HTTP server of its own on a loopback port."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nemo_gym.config.errors import ConfigError
from nemo_gym.errors import GymError


class EngineError(GymError):
    """The engine can't be started."""


@dataclass(frozen=True)
class EngineSettings:
    """`context_tokens` is per request; `slots` requests are computed at a time."""

    weights: Path
    context_tokens: int
    slots: int
    threads: int


@dataclass
class Engine:
    """A running engine. It ends with `stop`, and with the process whatever happens."""

    address: str
    api_key: str = field(repr=False)
    _server: Any = field(repr=False)

    @classmethod
    def start(cls, settings: EngineSettings) -> Engine:
        """Loads the weights, which takes a second or so, and serves. Starts threads: never before a fork.

        Raises ConfigError when the engine isn't installed, EngineError when it can't be started.
        """
        xllamacpp = _import_engine()
        api_key = secrets.token_hex(16)
        parameters = _parameters(xllamacpp, settings, api_key)
        try:
            server = xllamacpp.Server(parameters)
        except RuntimeError as error:
            raise EngineError(
                f"llama.cpp can't serve {settings.weights} ({error}): is the file whole, and is there memory for a "
                f"context of {settings.slots} x {settings.context_tokens} tokens?"
            ) from error
        return cls(str(server.listening_address), api_key, server)

    def stop(self) -> None:
        """Ends the engine's threads and closes its port. Close its client first: it answers whoever still waits."""
        self._server = None


def _import_engine() -> Any:
    # The engine's threads meet at barriers many times per token; if they spin there while another process has the
    # core, generation slows down by a factor of forty. Read when the library is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        import xllamacpp
    except ImportError as error:
        raise ConfigError(
            "llama_cpp_model needs the package xllamacpp: start the server with `gym env start` or `gym eval run`, "
            "which install it. It has wheels for Linux, macOS and Windows; elsewhere name a model with --model-type."
        ) from error
    return xllamacpp


def _parameters(xllamacpp: Any, settings: EngineSettings, api_key: str) -> Any:
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(settings.weights)
    parameters.n_ctx = settings.context_tokens * settings.slots
    parameters.n_parallel = settings.slots
    parameters.cpuparams.n_threads = settings.threads
    parameters.cpuparams_batch.n_threads = settings.threads
    parameters.n_gpu_layers = 0
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.api_keys = [api_key]
    parameters.n_threads_http = 2 * settings.slots + 4
    parameters.endpoint_slots = False
    parameters.ui = False
    parameters.verbosity = 0
    # Think tags stay in the text, where the converter reads them; a history that ends with the assistant is history.
    parameters.reasoning_format = xllamacpp.common_reasoning_format.COMMON_REASONING_FORMAT_NONE
    parameters.prefill_assistant = False
    # Greedy unless a request samples, and then from the model's own distribution.
    sampling = parameters.sampling
    sampling.temp, sampling.top_k, sampling.top_p, sampling.min_p = 0.0, 0, 1.0, 0.0
    return parameters


def available_cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
