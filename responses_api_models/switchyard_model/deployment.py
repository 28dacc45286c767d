"""A Switchyard proxy started beside the model server, from a deployment file."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nemo_gym.config.errors import ConfigError
from nemo_gym.global_config import find_open_port
from responses_api_models.local_vllm_model.engine_process import EngineProcess, end_this_process

PROGRAM = "switchyard-server"


@dataclass(frozen=True)
class Proxy:
    """A running proxy and its address."""

    base_url: str
    process: EngineProcess

    def stop(self) -> None:
        """End it."""
        self.process.stop()


def start_proxy(
    deployment: Path,
    port: int | None = None,
    disallowed_ports: list[int] | None = None,
    *,
    on_death: Callable[[], object] = end_this_process,
) -> Proxy:
    """Starts `switchyard-server` on loopback and waits until it is healthy. Raises ConfigError, EngineEnded."""
    if not deployment.is_file():
        raise ConfigError(f"The Switchyard deployment {deployment} doesn't exist.")
    program = shutil.which(PROGRAM)
    if program is None:
        raise ConfigError(
            f"`deployment` needs the program {PROGRAM} on the PATH of the model server: install Switchyard "
            "(package nemo-switchyard), or start a proxy yourself and give switchyard_base_url."
        )
    port = port or find_open_port(disallowed_ports=disallowed_ports)
    command = [program, "--config", str(deployment), "--host", "127.0.0.1", "--port", str(port)]
    process = EngineProcess("the Switchyard proxy", command, {}, on_death=on_death)
    process.wait_until_it_answers(f"http://127.0.0.1:{port}/health", {})
    process.watch()
    return Proxy(f"http://127.0.0.1:{port}/v1", process)
