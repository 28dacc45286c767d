"""Which servers may share a process, and what the config says about it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from nemo_gym.config.errors import ConfigError
from nemo_gym.config.instances import ServerInstance
from nemo_gym.config.placement import Placement, Shard, ShardMember, cores, placed_shards, put_ports, set_placed_shards
from nemo_gym.launch.interpreter import this_installation
from nemo_gym.launch.placement import (
    base_venv,
    listed,
    shared_members,
    why_not_all,
    why_not_by_itself,
    within_limits,
)
from nemo_gym.launch.plan import ServerPlan
from nemo_gym.launch.preload import PreloadFacts
from nemo_gym.launch.sources import shared_class
from nemo_gym.launch.venvs import Venv

APP = """
from typing import ClassVar

class Toy:
    shareable: ClassVar[bool] = True

if __name__ == "__main__":
    Toy.run_webserver()
elif True:
    app = None
"""
FACTS = PreloadFacts(frozenset(), frozenset())


def component(folder: Path, source: str = APP, **others: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "app.py").write_text(source)
    for name, text in others.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def plan(folder: Path, kind: str = "responses_api_agents", **block: Any) -> ServerPlan:
    name = folder.name
    instance = ServerInstance(name, kind, name, {"entrypoint": "app.py", "host": "127.0.0.1", "port": 1, **block})
    return ServerPlan(instance, folder, folder / "app.py", needs_ray=False)


def members(plans: list[ServerPlan], venv: Venv | None = None, facts: PreloadFacts = FACTS) -> list[str]:
    venvs = {each.directory: venv or base_venv() for each in plans}
    return [member.name for _, member in shared_members(plans, venvs, facts)]


def test_a_class_that_declares_it_may_share(tmp_path: Path) -> None:
    folder = component(tmp_path / "toy")
    assert shared_class(folder, folder / "app.py") == "Toy"


@pytest.mark.parametrize(
    "source",
    [
        APP.replace("True", "False", 1),
        APP.replace("    shareable: ClassVar[bool] = True\n", "    pass\n"),
        APP + "\nclass Other(Toy):\n    shareable = False\n",
        APP.replace("    Toy.run_webserver()", "    print('first')\n    Toy.run_webserver()"),
        APP.replace("    Toy.run_webserver()", "    Toy().run_webserver()"),
        APP.replace("    Toy.run_webserver()", "    Toy.run_webserver()\n    print('last')"),
        APP.replace("__main__", "__other__"),
        "import answers\n" + APP,
        "this is no python\n" + APP,
    ],
)
def test_anything_else_keeps_its_own_process(tmp_path: Path, source: str) -> None:
    folder = component(tmp_path / "toy", source, answers="")
    assert shared_class(folder, folder / "app.py") is None


def test_members_are_imported_by_names_of_their_own(tmp_path: Path) -> None:
    first, second = component(tmp_path / "one"), component(tmp_path / "two")
    plans = [plan(first), plan(second, "resources_servers")]
    found = [member for _, member in shared_members(plans, dict.fromkeys([first, second], base_venv()), FACTS)]
    assert [member.module for member in found] == ["responses_api_agents.one.app", "resources_servers.two.app"]
    assert [member.file for member in found] == [str(first / "app.py"), str(second / "app.py")]


def test_without_anything_that_rollouts_are_sent_to_nothing_is_shared(tmp_path: Path) -> None:
    folder = component(tmp_path / "toy")
    assert members([plan(folder)]) == members([plan(folder, "environment_servers")]) == ["toy"]
    assert members([plan(folder, "resources_servers"), plan(folder, "responses_api_models")]) == []


def test_what_needs_a_process_of_its_own_keeps_it(tmp_path: Path) -> None:
    base = this_installation()
    folder = component(tmp_path / "toy")
    plans = [plan(folder)]
    overlay = Venv(tmp_path / "v", "ours", base.executable, tmp_path)
    assert members(plans, overlay) == ["toy"]
    assert members(plans, replace(overlay, provides=frozenset({"sympy"}))) == []
    assert members(plans, replace(overlay, kind="foreign")) == []
    assert members(plans, facts=replace(FACTS, problem="a thread runs")) == []
    assert members([plan(folder, num_workers=2)]) == []
    assert members([replace(plans[0], needs_ray=True)]) == []


def test_the_config_chooses_the_placement() -> None:
    assert Placement.from_config({}) == Placement("process", 1)
    assert Placement.from_config({"placement": "shared"}) == Placement("shared", cores())
    assert Placement.from_config({"placement": "shared", "placement_shards": 3}).shards == 3
    assert Placement.from_config({"placement_shards": 3}).shards == 1
    assert Placement.from_config({"placement": "ray", "placement_shards": 3}) == Placement("ray", 1)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"placement": "shard"}, "process, shared, ray or auto"),
        ({"placement_shards": 0}, "0"),
        ({"placement_shards": True}, "True"),
    ],
)
def test_a_wrong_placement_is_refused(config: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Placement.from_config(config)


def test_shards_are_found_in_the_config_by_every_name_of_a_server() -> None:
    block = {"entrypoint": "app.py", "host": "127.0.0.1", "port": 1}
    relay = {**block, "agent_server": {"type": "responses_api_agents", "name": "agent"}}
    config = OmegaConf.create(
        {
            "agent": {"responses_api_agents": {"simple_agent": dict(block)}},
            "env": {"environment_servers": {"legacy_agent": relay}},
            "other": {"resources_servers": {"toy": dict(block)}},
        }
    )
    assert placed_shards(config) == []
    set_placed_shards(config, [{"agent": 1}, {"agent": 2}])
    assert placed_shards(config) == [{"agent": 1, "env": 1}, {"agent": 2, "env": 2}]
    put_ports(config, placed_shards(config)[1])
    assert config.agent.responses_api_agents.simple_agent.port == 2
    assert config.env.environment_servers.legacy_agent.port == 2
    assert config.other.resources_servers.toy.port == 1


def test_a_shard_reads_what_it_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    shard = Shard(1, 2, (ShardMember("toy", "/x/app.py", "a.b.app", "Toy"),))
    monkeypatch.setenv("NEMO_GYM_SHARD", shard.as_text())
    assert Shard.from_environment() == shard
    with pytest.raises(ConfigError, match="placement=shared"):
        Shard.from_environment()


def test_names_are_listed_as_in_a_sentence() -> None:
    assert [listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])] == ["a", "a and b", "a, b and c"]


# --- a placement that nobody chose ---


def test_a_command_may_have_the_placement_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nemo_gym.config.placement.cores", lambda: 8)
    assert Placement.from_config({}, "auto") == Placement("auto", 8)
    assert Placement.from_config({"placement": "process"}, "auto") == Placement("process", 1)
    assert Placement.from_config({"placement": "auto", "num_samples_in_parallel": 3}) == Placement("auto", 3)
    assert Placement.from_config({"placement": "auto", "placement_shards": 5, "num_samples_in_parallel": 3}).shards == 5


@pytest.mark.parametrize(("quota", "found"), [("150000 100000\n", 2), ("1000 100000\n", 1), ("max 100000\n", 4)])
def test_a_container_with_less_cpu_has_fewer_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, found: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3})
    (tmp_path / "cpu.max").write_text(quota)
    monkeypatch.setattr("nemo_gym.config.placement._CPU_MAX", tmp_path / "cpu.max")
    assert cores() == found


def reason(plans: list[ServerPlan], venv: Venv | None = None, facts: PreloadFacts = FACTS) -> str | None:
    return why_not_all(plans, {each.directory: venv or base_venv() for each in plans}, facts)


def test_every_server_has_to_allow_it_and_the_first_that_does_not_is_named(tmp_path: Path) -> None:
    base = this_installation()
    folder, other = component(tmp_path / "toy"), component(tmp_path / "other", APP.replace("True", "False", 1))
    fine = plan(folder)
    assert reason([fine]) is None
    assert reason([fine, plan(other)]) == ("other (responses_api_agents/other) doesn't declare that it may share one")
    assert reason([plan(folder, num_workers=2)]) == "toy asks for 2 workers"
    assert reason([replace(fine, needs_ray=True)]) == "toy keeps its own (it uses Ray)"
    overlay = Venv(tmp_path / "v", "ours", base.executable, tmp_path, provides=frozenset({"sympy"}))
    assert reason([fine], overlay) == "toy keeps its own (its venv has its own sympy)"


def test_some_runs_are_not_shared_by_themselves(tmp_path: Path) -> None:
    fine = plan(component(tmp_path / "toy"))
    two = plan(component(tmp_path / "two"), num_workers=2)

    def why(settings: dict[str, Any], *plans: ServerPlan) -> str | None:
        venvs = dict.fromkeys([each.directory for each in plans], base_venv())
        return why_not_by_itself(OmegaConf.create(settings), plans, venvs, FACTS)

    assert why({}, fine) is None
    assert why({"ray_head_node_address": "auto"}, fine) == "the run uses Ray"
    assert "token ids are captured" in str(why({"token_id_capture": {"enabled": True}}, fine))
    assert why({"token_id_capture": {"enabled": False}}, fine) is None
    assert why({}, fine, two) == "two asks for 2 workers"


def test_a_strict_limit_is_not_multiplied_by_shards(tmp_path: Path) -> None:
    """B43: a server that is limited to two at a time is, however many shards there could be."""
    folder = component(tmp_path / "toy")
    plans = [plan(folder), plan(folder, max_concurrent_requests=2, num_concurrent_calls=5, max_steps=1)]
    counted = Placement("auto", 8, is_counted=True)
    assert within_limits(counted, plans).shards == 2
    assert within_limits(replace(counted, is_counted=False), plans).shards == 8
    assert within_limits(counted, plans[:1]).shards == 8
