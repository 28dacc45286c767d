"""What `gym env resolve` makes of configs, as recorded from NeMo Gym 0.7."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.config.errors import ConfigError
from nemo_gym.config.interpolations import resolved
from nemo_gym.config.secrets import recursively_hide_secrets
from tests.unit.config.conftest import parser_and_config

GOLDEN = Path(__file__).parent / "golden"
CASES: list[dict[str, Any]] = json.loads((GOLDEN / "cases.json").read_text())
PATHS = ("results_dir", "cache_dir", "uv_cache_dir", "uv_venv_dir")


@pytest.fixture(autouse=True)
def files(project: Path) -> None:
    for file in GOLDEN.glob("*.yaml"):
        shutil.copy(file, project)


def overrides_of(argv: list[str]) -> list[str]:
    """The overrides that the command hands to the parser: config files become one list."""
    words = argv[argv.index("resolve") + 1 :]
    files = [words[index + 1] for index, word in enumerate(words) if word == "--config"]
    typed = [word for word in words if word != "--config" and word not in files]
    return [f"+config_paths=[{','.join(files)}]", *typed]


def comparable(config: dict[str, Any]) -> dict[str, Any]:
    """Without what depends on machine, versions and chance. Ports handed out aren't compared: a relay has none."""
    for path in PATHS:
        config[path] = "<path>"
    for chance in ("disallowed_ports", "head_server_deps", "python_version"):
        config[chance] = f"<{chance}>"
    for entry in config.values():
        for implementations in entry.values() if isinstance(entry, dict) else ():
            for block in implementations.values() if isinstance(implementations, dict) else ():
                if isinstance(block, dict) and "port" in block:
                    block["port"] = "<port>"
    return config


@pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])
def test_resolves_as_recorded(case: dict[str, Any], project: Path) -> None:
    shutil.copy(project / case["env_yaml"], project / "env.yaml")
    overrides = overrides_of(case["argv"])
    if case["exit"] != 0:
        with pytest.raises(ConfigError):
            parser_and_config(*overrides, offline=False)
        return
    _, config = parser_and_config(*overrides, offline=False)
    actual = resolved(config)
    recursively_hide_secrets(actual)
    # As text, so that the order of keys counts too.
    assert json.dumps(comparable(actual), indent=1) == json.dumps(comparable(case["resolved"]), indent=1)


def test_there_are_cases_of_both_kinds() -> None:
    assert {case["exit"] for case in CASES} == {0, 1}
    assert len(CASES) == 11
