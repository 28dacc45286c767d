import asyncio
import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from nemo_gym import Environment, call
from nemo_gym.onefile.episode import Episode
from nemo_gym.onefile.errors import EnvironmentFileError
from nemo_gym.onefile.playing import played
from nemo_gym.onefile.tasks import task_of


def counter(**settings: Any) -> Environment:
    """Counts in its state what it was told to add."""
    env = Environment("counter", state=list, **settings)

    @env.tool
    def add(number: int, state: list[int]) -> dict[str, int]:
        """Add a number."""
        if number < 0:
            raise ValueError("negative")
        state.append(number)
        return {"sum": sum(state)}

    @env.verify
    def total(response: Any, task: dict[str, Any], state: list[int]) -> tuple[float, str]:
        return float(sum(state) == task["total"]), response.text

    return env


def test_decorated_functions_stay_what_they_are() -> None:
    env = Environment()

    @env.tool
    def double(number: int) -> int:
        return 2 * number

    assert double(4) == 8


def test_tasks_become_rows_with_prompt_and_tools() -> None:
    env = counter(tasks=[{"question": "Add 3.", "total": 3}], system="Count.")
    (row,) = env.rows()
    parameters = row.pop("responses_create_params")
    assert row == {"question": "Add 3.", "total": 3}
    assert [tool["name"] for tool in parameters["tools"]] == ["add"]
    assert parameters["input"] == [{"role": "system", "content": "Count."}, {"role": "user", "content": "Add 3."}]


@pytest.mark.parametrize(
    ("task", "settings", "content"),
    [
        ({"prompt": "{not a field}"}, {}, "{not a field}"),
        ({"a": 1, "b": 2}, {"prompt": "What is {a} + {b}?"}, "What is 1 + 2?"),
        ({"question": "Why?"}, {"prompt": "In short: {question}"}, "In short: Why?"),
        ({"prompt": [{"role": "user", "content": "as is"}]}, {}, "as is"),
        ({"responses_create_params": {"input": [{"role": "user", "content": "whole"}]}}, {}, "whole"),
    ],
)
def test_prompts(task: dict[str, Any], settings: dict[str, Any], content: str) -> None:
    assert counter(**settings).row(task)["responses_create_params"]["input"][-1]["content"] == content


@pytest.mark.parametrize(
    ("tasks", "problem"),
    [
        ([{"total": 1}], "task 1 has no `question` or `prompt`"),
        (["what?"], "task 1 is 'what\\?': a task is a dict"),
        ([{"question": "?", "reward": 1}], "task 1 can't have a field `reward`"),
        ([{"question": "?", "at": object()}], "task 1 can't be written as JSON"),
        ("nowhere.jsonl", "can't be read: No such file"),
    ],
)
def test_wrong_tasks_are_said_with_the_environments_line(tasks: Any, problem: str) -> None:
    with pytest.raises(EnvironmentFileError, match=problem) as caught:
        counter(tasks=tasks).rows()
    assert str(caught.value).startswith(f"{__file__}:")


def test_a_template_without_its_field_is_said() -> None:
    with pytest.raises(EnvironmentFileError, match=r"task 2: The prompt needs the field `b`[^;]*; it has: a\."):
        counter(tasks=[{"a": 1, "b": 1}, {"a": 1}], prompt="{a}{b}").rows()


def test_tasks_come_from_functions_and_from_files_beside_the_environments() -> None:
    assert counter(tasks=lambda: [{"question": "q"}]).tasks == [{"question": "q"}]
    path = Path(__file__).with_name("three_tasks.jsonl")
    assert [task["total"] for task in counter(tasks=path.name).tasks] == [1, 2, 3]


@pytest.mark.parametrize("line", ["{", "[1]"])
def test_wrong_lines_of_a_file_are_said(line: str, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"question": "a"}\n\n' + line)
    with pytest.raises(EnvironmentFileError, match=r"t\.jsonl:3: "):
        counter(tasks=str(tmp_path / "t.jsonl")).rows()


def test_playing_calls_tools_on_a_state_of_the_episodes_own() -> None:
    env = counter()
    task = {"total": 5}
    outcome = env.play(task, [call("add", number=2), call("add", number=3), "five"])
    assert (outcome.reward, outcome.reason, outcome.state) == (1.0, "five", [2, 3])
    assert [json.loads(output) for output in outcome.outputs] == [{"sum": 2}, {"sum": 5}]
    assert env.play(task, "five").reward == 0.0


async def test_mistakes_of_a_model_are_told_to_it_and_the_episode_goes_on() -> None:
    """B71, B74."""
    raw = {**call("add"), "arguments": "[1"}
    wrong = (call("add", number=-1), call("add", number="x"), call("sub", number=1), raw, call("add", number=4))
    outcome = await played(counter(), {"total": 4}, [wrong, "done"])
    assert outcome.reward == 1.0
    assert [json.loads(output).get("error", "fine")[:32] for output in outcome.outputs] == [
        "ValueError: negative",
        "wrong arguments for add: number:",
        "There is no tool 'sub'. The tool",
        "Invalid tool call arguments: not",
        "fine",
    ]


def test_a_state_may_be_made_from_the_task() -> None:
    env = Environment(state=lambda task: {"left": task["stock"]})

    @env.verify
    def left(state: dict[str, int]) -> int:
        return state["left"]

    assert env.play({"stock": 7}, "").reward == 7.0


def test_the_number_of_steps_is_bounded() -> None:
    env = counter(max_steps=2)
    assert env.play({"total": 2}, [call("add", number=1)] * 5).reward == 1.0


def test_a_wrong_return_value_is_said_with_the_verifiers_line() -> None:
    env = Environment()

    @env.verify
    def judge(task: dict[str, Any]) -> str:
        return "good"

    with pytest.raises(EnvironmentFileError, match="`judge` returned 'good', which is no reward") as caught:
        env.play({}, "")
    assert str(caught.value).startswith(f"{__file__}:{judge.__code__.co_firstlineno}:")


def test_of_a_long_return_value_the_beginning_is_said() -> None:
    env = Environment()

    @env.verify
    def judge(task: dict[str, Any]) -> str:
        return "good" * 100_000

    with pytest.raises(EnvironmentFileError, match="returned 'goodgood") as caught:
        env.play({}, "")
    assert len(str(caught.value)) < 5_000


def test_a_reference_gets_the_task_of_a_row_and_is_the_audits() -> None:
    env = counter(tasks=[{"question": "?", "total": 4}])

    @env.reference
    def right(task: dict[str, Any]) -> list[Any]:
        assert "responses_create_params" not in task
        return [call("add", number=task["total"])]

    row = env.rows()[0] | {"agent_ref": {}, "_ng_task_index": 0}
    assert env.play(env.tasks[0], env.reference_for(row)).reward == 1.0
    assert env.audit.reference is not None and env.audit.full == 1.0


def test_one_verifier_one_tool_of_a_name() -> None:
    env = counter()
    with pytest.raises(EnvironmentFileError, match="`total` verifies already"):
        env.verify(lambda response: 1)

    def add(x: int) -> int:
        return x

    with pytest.raises(EnvironmentFileError, match="there is a tool `add` already"):
        env.tool(add)


def test_without_a_verifier_nothing_can_be_played() -> None:
    with pytest.raises(EnvironmentFileError, match="has no verifier: decorate"):
        Environment().play({}, "")


async def test_calls_of_an_episode_run_one_after_the_other() -> None:
    env = Environment(state=lambda: {"sum": 0})
    env.verify(lambda state: state["sum"])

    @env.tool
    async def add(number: int, state: dict[str, int]) -> None:
        """Add, with a pause in which others could come between."""
        before = state["sum"]
        await asyncio.sleep(0)
        state["sum"] = before + number

    episode, tool = await Episode.begin(env, {}), env.tools["add"]
    await asyncio.gather(*(episode.call(tool, tool.validated({"number": 1})) for _ in range(5)))
    assert episode.state == {"sum": 5}


def test_a_reference_hears_the_answers_to_its_last_calls_only() -> None:
    heard: list[str] = []

    def replies() -> Generator[Any, str, None]:
        for _ in range(2):
            heard.append((yield (call("add", number=1), call("add", number=1))))
        yield "2"

    counter().play({"total": 4}, replies())
    assert heard == ['{"sum": 1}\n{"sum": 2}', '{"sum": 3}\n{"sum": 4}']


@pytest.mark.parametrize("field", ["agent_ref", "response", "reward", "task_data", "verifier_metadata"])
def test_fields_that_rows_need_for_something_else_are_refused(field: str) -> None:
    with pytest.raises(EnvironmentFileError, match=f"task 1 can't have a field `{field}`: rename it"):
        counter(tasks=[{"question": "?", field: 1}]).rows()


def test_a_task_with_a_system_message_of_its_own_gets_no_second_one() -> None:
    messages = [{"role": "system", "content": "Mine."}, {"role": "user", "content": "?"}]
    (row,) = counter(tasks=[{"prompt": messages}], system="Count.").rows()
    assert row["responses_create_params"]["input"] == messages


def test_what_a_run_adds_to_a_row_is_no_part_of_the_task() -> None:
    (row,) = counter(tasks=[{"question": "?", "total": 1}]).rows()
    assert task_of({**row, "_ng_group_id": 3, "agent_ref": {}}) == {"question": "?", "total": 1}
