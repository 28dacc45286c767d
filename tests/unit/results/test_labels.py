from __future__ import annotations

from typing import Any

import pytest

from nemo_gym.results.labels import label_runs, rollout_agent_label, rollout_run_key, rollout_run_labels


def row(agent: str | None = None, server: str | None = None) -> dict[str, Any]:
    return {
        **({"agent_ref": {"name": agent}} if agent else {}),
        **({"_ng_environment_server": server} if server else {}),
    }


@pytest.mark.parametrize(
    ("given", "key"),
    [
        (row("a", "s"), "s"),
        (row("a"), "a"),
        (row(server="s"), "s"),
        (row(), None),
        ({"agent_ref": None}, None),
        ({"agent_ref": "a"}, None),
        ({"_ng_environment_server": "", "agent_ref": {"name": "a"}}, "a"),
    ],
)
def test_a_run_is_known_by_its_server_else_by_its_agent(given: dict[str, Any], key: str | None) -> None:
    assert rollout_run_key(given) == key


def test_a_run_is_called_by_the_agent_it_has_to_itself() -> None:
    assert label_runs({"s1": ["a"], "s2": ["b"]}) == {"s1": "a", "s2": "b"}


def test_a_server_name_stands_where_an_agent_is_shared_or_one_of_several() -> None:
    assert label_runs({"s1": ["a"], "s2": ["a"]}) == {"s1": "s1", "s2": "s2"}
    assert label_runs({"s1": ["a"], "s2": ["a", "b"]}) == {"s1": "s1", "s2": "s2"}
    assert label_runs({"s1": ["a", "b"]}) == {"s1": "s1"}
    assert label_runs({"s1": []}) == {"s1": "s1"}


def test_clashing_labels_fall_back_to_the_keys() -> None:
    assert label_runs({"s": ["x"], "x": []}) == {"s": "s", "x": "x"}


def test_labels_of_rows() -> None:
    rows = [row("a", "s1"), row("a", "s1"), row("b", "s2"), row("c", "s2"), row("d"), row()]
    assert rollout_run_labels(rows) == {"s1": "a", "s2": "s2", "d": "d"}
    labels = rollout_run_labels(rows)
    assert [rollout_agent_label(r, labels) for r in rows] == ["a", "a", "s2", "s2", "d", None]
    assert rollout_agent_label(row("a", "s1")) == "a"
    assert rollout_agent_label(row(server="s1")) == "s1"
