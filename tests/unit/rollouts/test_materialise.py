import json
from typing import Any

import pytest

from nemo_gym.rollout_collection import RolloutCollectionHelper
from nemo_gym.rollouts.errors import RoutingError, RowError
from nemo_gym.rollouts.materialise import Planner, PlanOptions, SourceRow, in_order
from tests.unit.rollouts.fakes import Row, task


def plan(rows: list[Row], options: PlanOptions | None = None, **changes: Any) -> list[Row]:
    planner = Planner(options or PlanOptions(**changes))
    sources = [SourceRow(f"row {index}", json.dumps(row).encode(), row) for index, row in enumerate(rows)]
    planned = [each for source in sources for each in planner.plan(source)]
    planner.finish()
    return planned


def indices(rows: list[Row]) -> list[tuple[int, int]]:
    return [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in rows]


def named(name: str, **fields: Any) -> Row:
    return task("q", agent_ref={"name": name}, **fields)


def test_repeats_of_a_row_follow_each_other_and_interleaved_they_come_in_rounds() -> None:
    rows = plan([task("a"), task("b")], agent_map={"_default": "x"}, num_repeats=2)
    assert indices(in_order(rows, interleave=False)) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert indices(in_order(rows, interleave=True)) == [(0, 0), (1, 0), (0, 1), (1, 1)]


def test_equal_lines_are_one_task_whose_repeats_are_counted_on() -> None:
    rows = plan([task("a"), task("b"), task("a")], agent_map={"_default": "x"}, num_repeats=2)
    assert indices(rows) == [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3)]


def test_a_given_task_index_is_kept_and_takes_no_number_of_its_own() -> None:
    rows = plan([task("a", _ng_task_index=7), task("b"), task("c", _ng_task_index=7)], agent_map={"_default": "x"})
    assert indices(rows) == [(7, 0), (0, 0), (7, 1)]


def test_many_tasks_keep_their_numbers_while_the_table_grows() -> None:
    rows = [task(str(number)) for number in range(5000)]
    planned = plan([*rows, rows[4321]], agent_map={"_default": "x"})
    assert [row["_ng_task_index"] for row in planned] == [*range(5000), 4321]


def test_a_fan_out_shares_the_repeat_numbers_of_a_task() -> None:
    rows = plan([named("old")], fan_out={"old": ["x", "y"]}, num_repeats={"x": 2, "y": 1})
    assert [(row["agent_ref"], row["_ng_rollout_index"]) for row in rows] == [
        ({"name": "x"}, 0),
        ({"name": "x"}, 1),
        ({"name": "y"}, 2),
    ]


def test_fan_out_is_looked_up_by_what_the_row_itself_names() -> None:
    routed = plan([named("old")], agent_map={"old": "new"}, fan_out={"old": ["x"], "new": ["z"]})
    sourced = plan([task("q", task_source="math")], agent_map={"_default": "new"}, fan_out={"math": ["y"]})
    assert [row["agent_ref"]["name"] for row in routed + sourced] == ["x", "y"]


@pytest.mark.parametrize(
    ("agent_map", "row", "agent"),
    [
        ({"a": "A", "s": "S", "_default": "D"}, {"agent_ref": {"name": "a"}, "task_source": "s"}, "A"),
        ({"s": "S", "_default": "D"}, {"agent_ref": {"name": "a"}, "task_source": "s"}, "S"),
        ({"_default": "D"}, {"agent_ref": {"name": "a"}, "task_source": "s"}, "D"),
        ({}, {"agent_ref": {"name": "a"}, "task_source": "s"}, "a"),
        ({"x": "X"}, {"task_source": "s"}, None),
        ({"_default": "D"}, {}, "D"),
    ],
)
def test_who_gets_a_row(agent_map: dict[str, str], row: Row, agent: str | None) -> None:
    (planned,) = plan([task("q", **row)], agent_map=agent_map)
    assert planned.get("agent_ref", {}).get("name") == agent


def test_an_agent_reference_stays_as_it_is_unless_the_row_is_rerouted() -> None:
    reference = {"type": "responses_api_agents", "name": "a", "extra": 1}
    kept, rerouted = plan([task("q", agent_ref=reference), task("p", agent_ref=reference)], agent_map={"a": "a"})
    assert kept["agent_ref"] == rerouted["agent_ref"] == reference
    assert plan([task("q", agent_ref=reference)], agent_map={"a": "b"})[0]["agent_ref"] == {"name": "b"}


def test_repeats_by_name_prefer_the_agent_then_the_rows_own_key_then_the_default() -> None:
    rows = [named("a"), task("q", task_source="s"), named("c")]
    counts = {"A": 3, "s": 2, "_default": 1}
    planned = plan(rows, agent_map={"a": "A", "s": "S"}, num_repeats=counts)
    assert [row["agent_ref"]["name"] for row in planned] == ["A", "A", "A", "S", "S", "c"]


def test_missing_repeat_counts_are_told_together_and_unused_ones_warned_about(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(RoutingError, match="num_repeats has no entry for b, c"):
        plan([named("a"), named("b"), named("c")], num_repeats={"a": 1})
    plan([named("a")], num_repeats={"a": 1, "zzz": 4})
    assert "num_repeats entries that fit no row: zzz" in capsys.readouterr().err


def test_rows_without_an_agent_are_told_together_before_missing_repeats() -> None:
    with pytest.raises(RoutingError, match="Rows without an agent: row 0; row 2"):
        plan([task("a"), named("x"), task("b")], num_repeats={"y": 1})


def test_routes_over_an_agent_reference_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    plan([named("old"), named("old", extra=1)], agent_map={"old": "new"})
    assert capsys.readouterr().err.count("agent_map replaced the agents rows name: old → new") == 1


def test_the_seed_is_the_repeat_number_inside_the_text_of_extra_body() -> None:
    row = task("q", agent_ref={"name": "a"})
    row["responses_create_params"]["metadata"] = {"k": "v", "extra_body": '{"top_k": 3}'}
    first, second = plan([row], num_repeats=2, add_seed=True)
    assert first["responses_create_params"]["metadata"] == {"k": "v", "extra_body": '{"top_k": 3, "seed": 0}'}
    assert second["responses_create_params"]["metadata"]["extra_body"] == '{"top_k": 3, "seed": 1}'
    assert row["responses_create_params"]["metadata"]["extra_body"] == '{"top_k": 3}'


def test_a_seed_needs_an_extra_body_that_is_an_object() -> None:
    row = task("q", agent_ref={"name": "a"})
    row["responses_create_params"]["metadata"] = {"extra_body": "[1"}
    with pytest.raises(RowError, match=r"row 0: `responses_create_params\.metadata\.extra_body` must be"):
        plan([row], add_seed=True)


def test_overrides_win_over_the_rows_own_parameters_and_the_skills_are_noted() -> None:
    row = named("a")
    row["responses_create_params"]["temperature"] = 1.0
    (planned,) = plan([row], overrides={"temperature": 0.5, "top_p": 0.9}, skills_ref={"hash": "h"})
    assert planned["responses_create_params"] == {"input": "q", "temperature": 0.5, "top_p": 0.9}
    assert planned["skills_ref"] == {"hash": "h"}
    assert row["responses_create_params"]["temperature"] == 1.0


def test_a_row_without_parameters_is_named_with_the_key() -> None:
    with pytest.raises(RowError, match="row 0 has no `responses_create_params`"):
        plan([{"question": "?", "agent_ref": {"name": "a"}}])


def test_the_plan_adds_its_keys_behind_those_of_the_row() -> None:
    (planned,) = plan([task("q", answer=3)], agent_map={"_default": "a"})
    assert list(planned) == ["responses_create_params", "answer", "agent_ref", "_ng_task_index", "_ng_rollout_index"]


def test_a_capture_id_that_no_path_could_carry_is_refused() -> None:
    with pytest.raises(RowError, match=r"row 0: .*_ng_rollout_id"):
        plan([named("a", _ng_rollout_id="../x")])


TASK = {"task_id": {"taskset": "env:ts", "task_id": "q7"}, "task_input": {"x": 1}}


@pytest.mark.parametrize("mode", ["agent", "legacy", "taskset"])
def test_tasks_of_a_task_set_go_where_it_is_routed_whatever_the_mode(mode: Any) -> None:
    routes = {"env:ts": "env"}
    (planned,) = plan(
        [TASK], routing_mode=mode, server_name="other", server_routes=routes, agent_map={"_default": "ignored"}
    )
    assert planned["_ng_environment_server"] == "env"
    assert "agent_ref" not in planned


def test_flat_rows_go_to_the_one_server_of_mode_legacy_and_are_refused_in_mode_taskset() -> None:
    (planned,) = plan([named("a")], routing_mode="legacy", server_name="env", agent_map={"a": "b"})
    assert (planned["_ng_environment_server"], planned["agent_ref"]) == ("env", {"name": "a"})
    with pytest.raises(RoutingError, match="row 0: a row without `task_id` and `task_input` has no task set"):
        plan([named("a")], routing_mode="taskset", server_routes={"ts": "env"})


def test_a_task_set_without_a_route_is_refused() -> None:
    with pytest.raises(RoutingError, match="no server for the task set 'env:ts'"):
        plan([TASK])


def test_tasks_and_flat_rows_may_be_mixed() -> None:
    rows = plan([TASK, named("a")], server_routes={"env:ts": "env"}, num_repeats={"env:ts": 2, "a": 1})
    assert [row.get("_ng_environment_server") for row in rows] == ["env", "env", None]


@pytest.mark.parametrize(
    "option", [{"overrides": {"temperature": 1}}, {"skills_ref": {"hash": "h"}}, {"add_seed": True}]
)
def test_options_of_flat_rows_are_refused_for_tasks(option: dict[str, Any]) -> None:
    with pytest.raises(RowError, match="row 0 is a task of a task set"):
        plan([TASK], server_routes={"env:ts": "env"}, **option)


def test_stamped_rows_count_repeats_by_task_set_source_or_server() -> None:
    options: dict[str, Any] = {"routing_mode": "legacy", "server_name": "env"}
    by_source = plan([named("a", task_source="s")], num_repeats={"s": 2, "a": 5}, **options)
    by_server = plan([named("a")], num_repeats={"env": 3, "a": 5}, **options)
    assert (len(by_source), len(by_server)) == (2, 3)


def test_preprocess_examples_works_on_copies_and_knows_equal_rows() -> None:
    rows = [task("q", b=1, a=2), {"a": 2, "b": 1, **task("q")}]
    planned = RolloutCollectionHelper().preprocess_examples(rows, agent_map={"_default": "x"}, num_repeats=2)
    assert indices(planned) == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert rows == [task("q", b=1, a=2), {"a": 2, "b": 1, **task("q")}]
