"""Commands that only read answer without the libraries that servers need."""

import json
import sys

import pytest

from tests.e2e.harness import Workplace

HEAVY = {"pydantic", "omegaconf", "hydra", "yaml", "fastapi", "starlette", "aiohttp", "httpx", "numpy", "ray", "openai"}
PROGRAM = """
import json, sys
from nemo_gym.cli.main import main
try:
    main()
except SystemExit:
    pass
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize(
    "line",
    [
        "--help",
        "env --help",
        "env start --help",
        "eval run --help",
        "--version",
        "--version --json",
        "env status +head_server.port=9",
        "env status --json +head_server.port=9",
        "env stop",
        "env logs x",
        "list agents",
        "env start --otput",
    ],
)
def test_a_command_that_reads_no_config_loads_none_of_them(place: Workplace, line: str) -> None:
    """A list reads configs once; what it found is kept."""
    (place.folder / "env.yaml").write_text("policy_base_url: http://m/v1\n")
    if line.startswith("list"):
        assert place.gym(*line.split()).code == 0
    ended = place.gym(*line.split(), program=(sys.executable, "-c", PROGRAM))
    loaded = {name.partition(".")[0] for name in json.loads(ended.err.splitlines()[-1])}
    assert loaded & HEAVY == set()


def test_composing_a_config_loads_no_server_and_no_ray(place: Workplace) -> None:
    argv = ("env", "validate", "--resources-server", "mcqa", "--model-type", "openai_model")
    ended = place.gym(*argv, program=(sys.executable, "-c", PROGRAM))
    loaded = {name.partition(".")[0] for name in json.loads(ended.err.splitlines()[-1])}
    assert "omegaconf" in loaded
    assert loaded & {"fastapi", "starlette", "aiohttp", "httpx", "ray", "openai", "numpy"} == set()
