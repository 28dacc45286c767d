"""`RunHelper`: a run as a library. Trainers drive it, and so do `gym env start` and `gym eval run`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Container
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TextIO

from nemo_gym.launch.errors import LaunchError
from nemo_gym.launch.fork_server import discard_prestarted, prestart
from nemo_gym.launch.launch import Launch
from nemo_gym.launch.process import ServerProcess
from nemo_gym.launch.signals import StopRequested, stop_signals
from nemo_gym.launch.status import ServerStatus

if TYPE_CHECKING:
    from threading import Thread

    from omegaconf import DictConfig

    from nemo_gym.config.placement import Mode
    from nemo_gym.global_config import GlobalConfigDictParserConfig
    from nemo_gym.launch.head import RunningHead
    from nemo_gym.serve.head import Head
    from nemo_gym.serve.uvicorn_server import UvicornServer
    from nemo_gym.server_utils import ServerClient, ServerInstanceDisplayConfig

__all__ = ["RunHelper", "StopRequested"]


class RunHelper:
    """Starts the servers of the global config, watches them and ends them.

    `output` gets the lines people and scripts wait for, `server_output` what the servers write (None: only their log
    files). `restarts` is how often within ten minutes a server that ends by itself is started again, and `placement`
    where servers are placed, unless the config says so (`server_restarts`, `placement`): by default a server's end is
    the run's, and each has a process of its own. With `head_may_move` a head server whose port nobody set takes
    another one where the usual one is taken.

    Any thread may call the methods; signal handlers are set in the main thread only, and only where nobody else has set
    any.
    """

    # The config of the run that was begun last: one to come is composed anew, though the process has this one cached.
    _spent: ClassVar[DictConfig | None] = None

    def __init__(
        self,
        *,
        output: Callable[[str], None] = print,
        server_output: TextIO | None = sys.stdout,
        restarts: int = 0,
        placement: Mode = "process",
        head_may_move: bool = False,
    ) -> None:
        self._options: dict[str, Any] = {"output": output, "server_output": server_output}
        self._options |= {"restarts": restarts, "placement": placement, "head_may_move": head_may_move}
        self._launch: Launch | None = None

    def start(self, global_config_dict_parser_config: GlobalConfigDictParserConfig) -> None:
        """Start all servers and return when they are ready; with `dry_run`, when all of them were constructed.

        Raises ConfigError or LaunchError, StopRequested on a signal; whatever was started has then been ended.
        """
        from nemo_gym.global_config import get_global_config_dict, set_global_config_dict

        prestart()
        try:
            config = get_global_config_dict(global_config_dict_parser_config=global_config_dict_parser_config)
            if config is RunHelper._spent:
                config = set_global_config_dict(global_config_dict_parser_config)
            RunHelper._spent = config
            self._launch = Launch(config, **self._options)
            self._launch.start()
        finally:
            discard_prestarted()

    def poll(self) -> None:
        """Raise RuntimeError naming the server, or the head server's thread, that has ended."""
        if self._launch is not None:
            self._launch.poll()

    def run_forever(self) -> None:
        """Return after an orderly stop on a signal; raise, after one, when something ended by itself."""
        if self._launch is not None:
            self._launch.run_forever()

    def run(self, global_config_dict_parser_config: GlobalConfigDictParserConfig) -> None:
        """Start, and stay until somebody stops it; a signal ends it in order at any moment."""
        try:
            with stop_signals():
                self.start(global_config_dict_parser_config)
                self.run_forever()
        except StopRequested:
            return

    def shutdown(self) -> None:
        """End everything. Safe to call again, and when nothing was started."""
        if self._launch is not None:
            self._launch.shutdown()

    def wait_for_spinup(self) -> None:
        """Return when every server answers; `start` has waited already."""
        self._started.wait_until_ready()

    def wait_for_dry_run_spinup(self) -> None:
        """Return when every process of a dry run has ended well; `start` has waited already."""
        self._started.wait_until_constructed()

    def wait_for_server_readiness(self, global_config_dict: DictConfig) -> None:
        """Return when servers and model endpoints answer."""
        self.wait_for_spinup()
        self.wait_for_model_endpoints(global_config_dict)

    def wait_for_model_endpoints(self, global_config_dict: DictConfig) -> None:
        """Return when the endpoints of the model servers answer. Raises ConfigError naming the silent ones."""
        self._started.wait_for_models()

    def check_http_server_statuses(
        self, done: Container[str], *, deadline: float | None = None
    ) -> list[tuple[str, ServerStatus]]:
        """Ask each server that isn't `done` once; `deadline` is a monotonic time after which nothing is asked."""
        return self._started.statuses(done, deadline)

    def display_server_instance_info(self) -> None:
        """Write the table of servers."""
        self._started.show_instances()

    @property
    def _processes(self) -> dict[str, ServerProcess]:
        return self._launch.processes if self._launch is not None else {}

    @property
    def _server_instance_display_configs(self) -> list[ServerInstanceDisplayConfig]:
        from nemo_gym.server_utils import ServerInstanceDisplayConfig

        return [ServerInstanceDisplayConfig(**record) for record in self._records]

    @property
    def _head_server(self) -> UvicornServer | None:
        return self._running_head.server if self._running_head is not None else None

    @property
    def _head_server_thread(self) -> Thread | None:
        return self._running_head.thread if self._running_head is not None else None

    @property
    def _head_server_instance(self) -> Head | None:
        return self._running_head.head if self._running_head is not None else None

    @cached_property
    def _server_client(self) -> ServerClient:
        from nemo_gym.server_utils import ServerClient

        head = ServerClient.load_head_server_config()
        return ServerClient(head_server_config=head, global_config_dict=self._started.config)

    @property
    def _records(self) -> list[dict[str, Any]]:
        return self._launch.records if self._launch is not None else []

    @property
    def _running_head(self) -> RunningHead | None:
        return self._launch.head if self._launch is not None else None

    @property
    def _started(self) -> Launch:
        if self._launch is None:
            raise LaunchError("Nothing is started: call start() first.")
        return self._launch
