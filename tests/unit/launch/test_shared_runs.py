"""Whole runs whose servers share processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig

from nemo_gym.config.placement import placed_shards
from nemo_gym.launch.errors import ServerFailedError
from nemo_gym.launch.run_directory import running
from tests.unit.launch import toys
from tests.unit.launch.test_launch import ask, started

Until = Callable[[Callable[[], bool]], None]

TOY = """
import os
from typing import Any, ClassVar

from fastapi import FastAPI

from nemo_gym.serve import local
from nemo_gym.server_utils import BaseRunServerInstanceConfig, SimpleServer, get_nemo_gym_fastapi_num_workers
from nemo_gym.server_utils import get_response_json


class Config(BaseRunServerInstanceConfig):
    max_concurrent_requests: int = 8
    other: str = ""


class Toy(SimpleServer):
    config: Config
    ray_enabled: ClassVar[bool | None] = False
    shareable: ClassVar[bool] = True

    def setup_webserver(self) -> FastAPI:
        app = FastAPI()
        self.setup_session_middleware(app)

        @app.get("/facts")
        async def facts() -> dict[str, Any]:
            print(f"asked {self.config.name}")
            return {"pid": os.getpid(), "port": self.config.port, "limit": self.config.max_concurrent_requests,
                    "workers": get_nemo_gym_fastapi_num_workers(), "module": type(self).__module__,
                    "listener": os.environ.get("NEMO_GYM_LISTEN_FD")}

        @app.get("/neighbour")
        async def neighbour() -> dict[str, Any]:
            url = self.server_client.base_url(self.config.other)
            is_local = local.find(self.config.other, url, {}) is not None
            answer = await get_response_json(await self.server_client.get(self.config.other, "/facts"))
            return {**answer, "local": is_local, "mine": os.getpid()}

        return app


if __name__ == "__main__":
    Toy.run_webserver()
"""


@pytest.fixture
def config(root: Path) -> DictConfig:
    """An agent with a neighbour that share two processes, and a server that keeps to itself."""
    toys.add_component(root, "agent", TOY, kind="responses_api_agents")
    toys.add_component(root, "near", TOY)
    toys.add_component(
        root, "alone", TOY.replace("shareable: ClassVar[bool] = True", "shareable: ClassVar[bool] = False")
    )
    made = toys.config_for(root, "near", "alone", placement="shared", placement_shards=2)
    agent = {"entrypoint": "app.py", "host": "127.0.0.1", "port": toys.free_port(), "other": "near"}
    made["agent"] = {"responses_api_agents": {"agent": agent}}
    return made


def url_of(config: DictConfig, name: str, shard: int) -> str:
    return f"http://127.0.0.1:{placed_shards(config)[shard][name]}"


def test_each_shard_has_a_copy_of_every_server_and_calls_it_without_a_socket(config: DictConfig, until: Until) -> None:
    """The config that is handed out has the shards; the log says which server wrote a line."""
    with started(config) as (launch, lines):
        assert "near and agent share 2 processes (placement: shared)" in lines
        assert "All 3 / 3 servers ready! Polling every 60s" in lines
        first, second = (ask(f"{url_of(config, 'agent', shard)}/neighbour") for shard in (0, 1))
        assert first["pid"] == first["mine"] != second["mine"] == second["pid"]
        assert first["local"] and second["local"]
        assert first["port"] == config.near.resources_servers.near.port
        assert second["port"] == placed_shards(config)[1]["near"] != first["port"]
        assert ask(f"{url_of(config, 'near', 1)}/facts")["pid"] == second["pid"]
        assert (first["workers"], first["limit"], first["module"]) == (2, 4, "resources_servers.near.app")
        assert first["listener"] is None
        alone = ask(f"{launch.records[1]['url']}/facts")
        assert alone["pid"] not in (first["pid"], second["pid"])
        assert (alone["workers"], alone["limit"], alone["module"]) == (1, 8, "__main__")

        handed_out = ask(f"http://127.0.0.1:{config.head_server.port}/global_config_dict_yaml")
        assert f"near: {placed_shards(config)[1]['near']}" in handed_out

        ask(f"{url_of(config, 'agent', 1)}/facts")
        logs = {name: Path(path) for name, path in running()[0].logs.items()}
        until(lambda: "(near) asked near\n" in logs["near"].read_text())
        until(lambda: "(agent) asked agent\n" in logs["shard-2"].read_text())
        assert logs["agent"] == logs["near"] == logs["shard-1"] != logs["alone"]


def test_only_servers_are_counted_and_listed_and_a_shard_ends_in_order_on_term(config: DictConfig) -> None:
    with started(config) as (launch, lines):
        listed = ask(f"http://127.0.0.1:{config.head_server.port}/server_instances")
        assert [record["process_name"] for record in listed] == ["near", "alone", "agent"]
        processes = launch.processes
        assert list(processes) == ["near", "alone", "agent"]
        assert listed[0]["pid"] == listed[2]["pid"] == processes["near"].pid == processes["agent"].pid
        assert listed[2]["port"] == config.agent.responses_api_agents.agent.port
        ending = [processes["near"], processes["alone"]]
        launch.shutdown()
        assert "Stopping 3 servers, waiting up to 5 s …" in lines
        assert [process.returncode for process in ending] == [143, 143]
        assert not any("Killed" in line for line in lines)


def test_the_death_of_a_shard_is_that_of_all_its_servers(config: DictConfig, until: Until) -> None:
    with started(config) as (launch, _):
        pid = ask(f"{url_of(config, 'agent', 1)}/facts")["pid"]
        os.kill(pid, signal.SIGKILL)

        def died() -> bool:
            try:
                launch.poll()
            except ServerFailedError as error:
                assert f"The process of near and agent (shard 2 of 2, pid {pid}) was killed by SIGKILL" in str(error)
                return True
            return False

        until(died)


def test_a_server_that_cannot_be_built_is_named(config: DictConfig) -> None:
    config.near.resources_servers.near["max_concurrent_requests"] = "many"
    with pytest.raises(ServerFailedError, match=r"shard \d of 2") as caught, started(config):
        pass
    assert "The configuration of server `near` is wrong: max_concurrent_requests" in str(caught.value)


def test_sharing_is_chosen_where_every_server_allows_it(config: DictConfig) -> None:
    del config["alone"], config["placement"], config["placement_shards"]
    config["num_samples_in_parallel"] = 1
    with started(config, placement="auto") as (launch, lines):
        chosen = "near and agent share one process (placement: shared, as all of them allow; +placement=process gives "
        assert f"{chosen}each its own)" in lines
        assert ask(f"{url_of(config, 'agent', 0)}/neighbour")["local"]
        assert len(launch.processes) == 2 and len({process.pid for process in launch.processes.values()}) == 1


def test_sharing_is_not_chosen_where_one_server_refuses(config: DictConfig) -> None:
    del config["placement"]
    with started(config, placement="auto") as (launch, lines):
        assert (
            "Every server has a process of its own: alone (resources_servers/alone) doesn't declare that it may share "
            "one."
        ) in lines
        assert placed_shards(config) == []
        assert len({process.pid for process in launch.processes.values()}) == 3


def test_a_placement_that_was_chosen_is_not_chosen_again(config: DictConfig) -> None:
    del config["alone"]
    config["placement"] = "process"
    with started(config, placement="auto") as (launch, lines):
        assert not any("share" in line for line in lines)
        assert len({process.pid for process in launch.processes.values()}) == 2


def test_nothing_is_shared_where_nothing_may_be(root: Path) -> None:
    toys.add_component(root, "alpha")
    config = toys.config_for(root, "alpha", placement="shared")
    with started(config) as (launch, lines):
        assert "Every server has a process of its own: none that rollouts are sent to may share one." in lines
        assert placed_shards(config) == []
        facts: dict[str, Any] = ask(launch.records[0]["url"])
        assert facts["pid"] == launch.processes["alpha"].pid


def test_a_dry_run_constructs_each_server_by_itself(config: DictConfig) -> None:
    config["dry_run"] = True
    with started(config) as (_, lines):
        assert "Dry run: all 3 / 3 servers were built." in lines
