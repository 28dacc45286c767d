"""Mistakes in an environment's file: each is told when it is read, in one sentence that begins with the line."""

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.onefile.environment import Environment
from nemo_gym.onefile.errors import EnvironmentFileError
from nemo_gym.onefile.loading import load_environment
from nemo_gym.onefile.verdict import verdict_of
from nemo_gym.testing.replies import call

HEAD = "from nemo_gym import Environment\n"
VERIFIER = "\n\n@env.verify\ndef verify(response):\n    return 0\n"


def told(tmp_path: Path, text: str, name: str = "made.py") -> str:
    path = tmp_path / name
    path.write_text(HEAD + text + VERIFIER)
    with pytest.raises(EnvironmentFileError) as failure:
        load_environment(path).rows()
    assert str(failure.value).startswith(f"{path}:")
    return str(failure.value).removeprefix(f"{path}:")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("env = Environment(state=[])", r"2: `state` is \[\], which all episodes would share: .* state=lambda: \[\]\."),
        ("env = Environment(prompt=5)", "2: `prompt` is 5: it must be text"),
        ("env = Environment(system=5)", "2: `system` is 5: it must be text"),
        ("env = Environment(task=[])", "2: Environment has no option `task`: `tasks` is meant"),
        ("env = Environment()\n@env.tool\ndef put(state: dict): 'Put.'", "3: the tool `put` takes `state`, and the"),
        (
            "env = Environment()\n@env.tool\ndef put():\n    'Put.'\n    yield 1",
            "3: the tool `put` yields: return a list",
        ),
        ("env = Environment()\n@env.tool\ndef größe(): 'Put.'", "3: a tool can't be called `größe`: providers take"),
        (
            f"env = Environment()\n@env.tool\ndef {'a' * 65}(): 'Put.'",
            "3: a tool can't be called `a{65}`: providers take",
        ),
    ],
)
def test_what_an_environment_cannot_be(text: str, said: str, tmp_path: Path) -> None:
    assert re.match(said, told(tmp_path, text))


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("{'question': 5}", "task 1 has the `question` 5: it must be text or a list of messages"),
        ("{'question': ''}", "task 1 has an empty `question`"),
        ("{'question': []}", "task 1 has an empty `question`"),
        ("{'question': 'a', 'prompt': 'b'}", "task 1 has both `prompt` and `question`"),
        (
            "{'question': [{'role': 'usr', 'content': 'a'}]}",
            "task 1 has a message of the role 'usr': it is one of user,",
        ),
        ("{'question': ['a']}", "task 1 has 'a' in its `question`: a message is a dict"),
        ("{'question': 'a', 'x': float('nan')}", "task 1 can't be written as JSON"),
    ],
)
def test_what_a_task_cannot_be(task: str, said: str, tmp_path: Path) -> None:
    assert told(tmp_path, f"env = Environment(tasks=[{task}])").startswith(f"2: {said}")


def test_tasks_that_raise_or_never_end_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raising = "def tasks():\n    yield {'question': '?'}\n    1 / 0\nenv = Environment(tasks=tasks)"
    assert told(tmp_path, raising).startswith("4: the tasks can't be made: ZeroDivisionError")
    monkeypatch.setattr("nemo_gym.onefile.tasks.MOST_TASKS", 3)
    endless = "def tasks():\n    while True: yield {'question': '?'}\nenv = Environment(tasks=tasks)"
    assert "there are more than 3 tasks" in told(tmp_path, endless)


def test_braces_in_a_template_and_names_that_are_none_come_with_a_hint(tmp_path: Path) -> None:
    template = """env = Environment(tasks=[{"a": 1}], prompt='Like {"x": 1}')"""
    assert "Write {{ and }} for braces" in told(tmp_path, template)
    for name in ("ünï.py", "1st.py"):
        assert 'letter first: `Environment("my_name", …)`' in told(tmp_path, "env = Environment()", name)


def test_messages_of_a_task_come_after_the_system_prompt() -> None:
    asked = [{"role": "user", "content": "?"}]
    (row,) = Environment("e", tasks=[{"question": asked}], system="Be good.").rows()
    assert row["responses_create_params"]["input"] == [{"role": "system", "content": "Be good."}, *asked]


def test_decorators_may_be_called_first() -> None:
    env = Environment("e")

    @env.tool()
    def look() -> str:
        """Look."""
        return "seen"

    @env.verify()
    def verify(response: Any) -> bool:
        return bool(response.calls)

    @env.reference()
    def right(task: Any) -> Any:
        return [call("look")]

    assert env.play({}, env.reference_for({})).reward == 1 and look() == "seen"


def test_a_reference_that_raises_names_its_line() -> None:
    env = Environment("e")
    env.reference(lambda task: task["nowhere"])
    with pytest.raises(EnvironmentFileError, match=r"test_mistakes\.py:\d+: `<lambda>` raised KeyError: 'nowhere'"):
        env.reference_for({})


def test_numbers_of_libraries_are_rewards() -> None:
    numpy = pytest.importorskip("numpy")
    assert verdict_of(numpy.float32(1)).reward == 1.0 and verdict_of(numpy.bool_(True)).reward == 1.0
    with pytest.raises(ValueError, match="no finite number"):
        verdict_of(numpy.float32("nan"))
    with pytest.raises(ValueError, match="no finite number"):
        verdict_of("1")


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (float("nan"), '"NaN"'),
        ({"a": Decimal("1.5"), "b": {2, 1}}, '{"a": "1.5", "b": [1, 2]}'),
        (float("-inf"), '"-Infinity"'),
        (set(range(1000, 0, -7)), json.dumps(list(range(6, 1001, 7)))),
        (object(), '{"error": "the tool returned a object, which can\'t be shown'),
        ((n for n in (1, 2)), '{"error": "the tool returned a generator, which can\'t be shown'),
    ],
)
def test_what_tools_return_is_readable(result: Any, text: str) -> None:
    env = Environment("e")
    env.verify(lambda: 0)

    @env.tool
    def give() -> Any:
        """Give."""
        return result

    assert env.play({}, call("give")).outputs[0].startswith(text)
