"""Which agent answers a data set."""

from typing import Any

import pytest

from nemo_gym.config.errors import ConfigError
from nemo_gym.global_config import (
    agents_by_resources_server,
    dataset_agent_pins,
    resolve_dataset_agent,
    rollout_run_key,
    taskset_environment_server_name,
)
from tests.unit.config.conftest import agent, model, resources


def front(*agents: str, **fields: Any) -> dict[str, Any]:
    names = {f"agent_{name}": {"type": "responses_api_agents", "name": name} for name in agents}
    return {"environment_servers": {"real": {"entrypoint": "app.py", **names, **fields}}}


CONFIG = {
    "env": resources(datasets=[{"name": "x", "agent": "one"}, {"name": "y", "agent": "one"}, {"name": "z"}]),
    "lonely": resources(),
    "single": resources(),
    "one": agent(serves="env"),
    "two": agent(serves="env"),
    "three": agent(serves="single"),
    "policy_model": model(),
    "single_front": front("three"),
    "both_front": front("one", "two"),
    "bound_front": front("one", resources_server={"type": "resources_servers", "name": "env"}),
    "bad_front": front("gone"),
    "environment_server_routes": {
        "t1": "single_front",
        "t2": "both_front",
        "t3": "bound_front",
        "t4": "bad_front",
        "t5": "nowhere",
    },
}


def test_agents_by_resources_server() -> None:
    assert agents_by_resources_server(CONFIG) == {"env": ["one", "two"], "single": ["three"]}


def test_pins() -> None:
    assert dataset_agent_pins(CONFIG, "env") == ["one"]
    assert dataset_agent_pins(CONFIG, "lonely") == []


@pytest.mark.parametrize(
    ("instance", "pin", "taskset", "expected"),
    [
        ("one", None, None, "one"),
        ("one", "one", None, "one"),
        ("single", None, None, "three"),
        ("env", "two", None, "two"),
        ("three", None, "t1", "three"),
        ("single", None, "t1", "three"),
        ("two", None, "t2", "two"),
        ("env", None, "t2", None),
        ("env", None, "t3", "one"),
    ],
)
def test_the_agent_of_a_data_set(instance: str, pin: str | None, taskset: str | None, expected: str | None) -> None:
    assert resolve_dataset_agent(CONFIG, instance, pin, taskset=taskset) == expected


@pytest.mark.parametrize(
    ("instance", "pin", "taskset", "said"),
    [
        ("one", "two", None, "can't be pinned to `two`"),
        ("env", "three", None, "isn't bound to it"),
        ("env", None, None, r"one, two are all bound.*agent_map=\{env: <agent>\}"),
        ("lonely", None, None, "no agent is bound to it"),
        ("env", "one", "t2", "both `taskset` and `agent`"),
        ("three", None, "t2", "doesn't name the agent `three`"),
        ("lonely", None, "t3", "which is bound to `env`"),
        ("env", None, "t9", "has no route"),
        ("env", None, "t4", "names the agent `gone`"),
        ("env", None, "t5", "no environment server"),
    ],
)
def test_what_leaves_no_agent_or_a_choice(instance: str, pin: str | None, taskset: str | None, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        resolve_dataset_agent(CONFIG, instance, pin, taskset=taskset)


def test_the_server_of_a_taskset() -> None:
    assert taskset_environment_server_name(CONFIG, "t2") == "both_front"


def test_labels_come_from_the_results_room() -> None:
    assert rollout_run_key({"_ng_environment_server": "e", "agent_ref": {"name": "a"}}) == "e"
