"""The files of a new resources server and of a new agent, by their paths in the project."""

from __future__ import annotations

import json
import keyword
import os
import re
import sys
from pathlib import Path
from typing import Any

from nemo_gym.environment.errors import ScaffoldError
from nemo_gym.environment.scaffold_files import filled

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_LICENSE_NOTE = "# SPDX-License-Identifier: Apache-2.0\n"
_IGNORED = "*train.jsonl\n*validation.jsonl\n*_prepare.jsonl\n*_prepare.*.jsonl\n"
_PREPARED = {"place": ", which is in `responses_create_params`", "prompt_field": ""}
_QUESTIONS = (
    ("What is 6 times 7?", "42"),
    ("What is 15 plus 28?", "43"),
    ("What is 90 minus 21?", "69"),
    ("What is 144 divided by 12?", "12"),
    ("What is 2 to the power of 10?", "1024"),
)


def check_name(name: str, *, is_python: bool) -> None:
    """Raises ScaffoldError for a name that no folder may have, or with `is_python` no Python module."""
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise ScaffoldError(
            f"{name!r} is no good name: use small letters, digits, '.', '_' and '-', the first a letter or a digit."
        )
    if is_python and not name.isidentifier():
        raise ScaffoldError(
            f"{name!r} is no name of a Python module, which this needs: use small letters, digits and '_' only."
        )
    if is_python and name in sys.stdlib_module_names:
        raise ScaffoldError(f"{name!r} is a module of Python itself, which would be hidden: choose another name.")


def class_name(name: str) -> str:
    """What the classes of a component begin with: `word_game` gives `WordGame`."""
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"[._-]", name))


def requirement(directory: Path, checkout: Path | None) -> str:
    """The line that installs Gym: this checkout's, seen from a component's folder, or the published package."""
    if checkout is None:
        return "nemo-gym[dev]\n"
    return f"-e nemo-gym[dev] @ {Path(os.path.relpath(checkout, directory)).as_posix()}/\n"


def server_files(name: str, *, gym: str, standalone: bool, has_raw_rows: bool = False) -> dict[str, str]:
    """The files of a resources server, by their paths in its folder. `has_raw_rows`: a template makes the prompts."""
    values = {"name": name, "class_name": class_name(name), "title": name.replace("_", " ").capitalize()}
    fields = {"place": "", "prompt_field": '    question: str = consumed_by("prompt")\n'} if has_raw_rows else _PREPARED
    notes = filled("server/standalone_notes.md", **values) if standalone else ""
    audit = ("", "") if has_raw_rows else (f"gym env audit {name}\n", ",\nand `audit.py` how a perfect model answers")
    readme = filled("server/README.md", audit_command=audit[0], audit_note=audit[1], **values)
    files = {
        "__init__.py": _LICENSE_NOTE,
        "app.py": filled("server/app.py", **values),
        "task_data.py": filled("server/task_data.py", **fields),
        f"configs/{name}.yaml": filled("server/standalone.yaml" if standalone else "server/component.yaml", **values),
        "requirements.txt": gym,
        "tests/__init__.py": _LICENSE_NOTE,
        "tests/test_app.py": filled("server/test_app.py", **values),
        "tests/verifier_cases.jsonl": as_lines(_cases()),
        "README.md": readme.replace("\n## Licence", f"{notes}\n## Licence"),
    }
    if not has_raw_rows:  # a benchmark's rows can't be audited by its name
        files["audit.py"] = filled("server/audit.py", **values)
    if standalone:
        files |= {"data/example.jsonl": as_lines(example_rows()), "data/.gitignore": _IGNORED}
    return files


def agent_files(name: str, profile: str, *, gym: str) -> dict[str, str]:
    """The files of the agent of a workload, by their paths in its folder."""
    loop = "agent/external_loop.py" if profile == "external-agent-loop" else "agent/own_loop.py"
    values = {"name": name, "class_name": class_name(name), "profile": profile}
    return {
        "__init__.py": _LICENSE_NOTE,
        "app.py": filled(loop, name=name, class_name=class_name(name)),
        "requirements.txt": gym,
        "README.md": filled("agent/README.md", **values),
    }


def example_rows() -> list[dict[str, Any]]:
    """Rows with a prompt each."""
    return [
        {
            "responses_create_params": {
                "input": [{"role": "user", "content": f"{question} Answer with nothing but the result."}]
            },
            "expected_answer": answer,
        }
        for question, answer in _QUESTIONS
    ]


def raw_rows() -> list[dict[str, Any]]:
    """Rows whose prompt is made by a template."""
    return [{"question": question, "expected_answer": answer} for question, answer in _QUESTIONS]


def as_lines(rows: list[dict[str, Any]]) -> str:
    """Rows as JSON lines."""
    return "".join(json.dumps(row) + "\n" for row in rows)


def _cases() -> list[dict[str, Any]]:
    request = {key: example_rows()[0][key] for key in ("responses_create_params", "expected_answer")}
    return [
        {"name": "right answer", "kind": "full_reward", "request": _answered(request, "42"), "expected_reward": 1.0},
        {"name": "wrong answer", "kind": "zero_reward", "request": _answered(request, "41"), "expected_reward": 0.0},
        {"name": "no response", "kind": "malformed", "request": request, "expected_error": "response"},
    ]


def _answered(request: dict[str, Any], text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    message = {"id": "msg", "type": "message", "role": "assistant", "status": "completed", "content": content}
    response = {
        "id": "resp", "created_at": 0.0, "model": "model", "object": "response", "output": [message],
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
    }  # fmt: skip
    return {**request, "response": response}
