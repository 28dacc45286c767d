"""What importing the types costs: no SDK, no HTTP library, no room."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import nemo_gym.schema

HEAVY = ("openai", "anthropic", "aiohttp", "fastapi", "omegaconf", "numpy", "ray")
FRONT_DOORS = (
    "openai_utils",
    "responses_converter",
    "responses_streaming",
    "chat_streaming",
    "anthropic_converter",
    "anthropic_utils",
    "vision_input",
    "failure_kinds",
    "episode_types",
    "tool_access",
    "rollout_observability",
)
SOURCES = sorted(Path(nemo_gym.schema.__path__[0]).glob("*.py"))


@pytest.mark.parametrize("module", FRONT_DOORS)
def test_a_front_door_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, nemo_gym.{module}; print(*sorted(set({HEAVY!r}) & set(sys.modules)))"

    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout.strip() == ""


def test_failure_kinds_need_no_pydantic() -> None:
    code = "import sys, nemo_gym.failure_kinds; print('pydantic' in sys.modules)"

    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout.strip() == "False"


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_the_room_imports_no_other(source: Path) -> None:
    tree = ast.parse(source.read_text())
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    ours = {name for name in imported if name.startswith("nemo_gym")}

    assert all(name == "nemo_gym.errors" or name.startswith("nemo_gym.schema") for name in ours)


def test_schemas_can_be_described() -> None:
    from nemo_gym import openai_utils as wire

    for model in (
        wire.NeMoGymResponse,
        wire.NeMoGymResponseCreateParamsNonStreaming,
        wire.NeMoGymChatCompletion,
        wire.NeMoGymChatCompletionCreateParamsNonStreaming,
    ):
        assert model.model_json_schema()["type"] == "object"
