"""The files around an environment's own file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nemo_gym.onefile.environment import Environment

_TYPES = {str: "str", bool: "bool", int: "int", float: "float", list: "list[Any]", dict: "dict[str, Any]"}


def class_name(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_")) + "ResourcesServer"


def server(name: str, *, imported: str) -> str:
    """`app.py`. `imported` is the line that imports `env`; without it the server reads the file beside it."""
    line = "    environment = env\n" if imported else ""
    return f'''"""Serves the environment in environment.py."""

from nemo_gym.environment_server import EnvironmentResourcesServer
{imported}

class {class_name(name)}(EnvironmentResourcesServer):
    ray_enabled = False
    shareable = True
{line}

if __name__ == "__main__":
    {class_name(name)}.run_webserver()
'''


def audit(imported: str) -> str:
    """`audit.py`: what the environment says. Without the line that imports `env` it reads the file."""
    if imported:
        return f'''"""What the audit of this environment knows."""

{imported}
AUDIT = env.audit
'''
    return '''"""What the audit of this environment knows."""

from pathlib import Path

from nemo_gym.onefile.loading import load_environment

AUDIT = load_environment(Path(__file__).with_name("environment.py")).audit
'''


def task_data(tasks: Iterable[Mapping[str, Any]]) -> str:
    """`task_data.py`: the fields of the tasks, required where all have them."""
    known = list(tasks)
    names = list(dict.fromkeys(name for task in known for name in task if name.isidentifier()))
    fields = "".join(f"    {_field(name, known)}\n" for name in names if name != "responses_create_params")
    any_import = "from typing import Any\n\n" if "Any" in fields else ""
    return f'''"""The fields of a row that belong to the task."""

{any_import}from pydantic import BaseModel, ConfigDict


class TaskData(BaseModel):
    model_config = ConfigDict(extra="allow")

{fields}'''


def _field(name: str, tasks: list[Mapping[str, Any]]) -> str:
    kinds = list(dict.fromkeys(_TYPES.get(type(task[name]), "Any") for task in tasks if name in task))
    kind = "Any" if "Any" in kinds else " | ".join(kinds)
    return f"{name}: {kind}" if all(name in task for task in tasks) else f"{name}: {kind} | None = None"


def readme(environment: Environment) -> str:
    tools = "".join(f"- `{tool.name}`: {tool.description}\n" for tool in environment.tools.values())
    return f"""# {environment.name}

{environment.description or "What it is about, and what it teaches."}

{tools and f"## Tools{chr(10)}{chr(10)}{tools}{chr(10)}"}## Running

    gym eval run --resources-server {environment.name}
    gym env test --resources-server {environment.name}
    gym env audit {environment.name}
"""


def tests(imported: str, own: Iterable[str], *, has_reference: bool) -> str:
    """`tests/test_app.py`: the file's `own` tests, the right answer gets more than none, and the rows are the tasks."""
    names = ", ".join(sorted(own))
    imported = f"{imported.rstrip()}, {names}  # noqa: F401\n" if names else imported
    right = """

@pytest.mark.parametrize("task", env.tasks)
def test_the_right_answer_pays(task: dict[str, Any]) -> None:
    assert env.play(task, env.reference_for(task)).reward > env.play(task, "").reward
"""
    imports = "from pathlib import Path\nfrom typing import Any\n\nimport pytest\n"
    if not has_reference:
        imports, right = "from pathlib import Path\n", ""
    return f"""{imports}
from nemo_gym.onefile.example_rows import stale_rows
{imported}

def test_the_example_rows_are_the_tasks() -> None:
    assert not stale_rows(env, Path(__file__).parents[1])


def test_saying_nothing_does_not_pay() -> None:
    for task in env.tasks:
        assert env.play(task, "").reward <= 0
{right}"""
