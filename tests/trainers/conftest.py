from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from nemo_gym import global_config
from tests.e2e.harness import ROOT
from tests.ports import free_port
from tests.trainers.readers import NemoRL
from tests.trainers.vllm import Engine, serving

Started = Callable[..., NemoRL]
CONFIGS = (
    "resources_servers/example_single_tool_call/configs/example_single_tool_call.yaml",
    "resources_servers/mcqa/configs/mcqa.yaml",
    "responses_api_models/vllm_model/configs/vllm_model_for_training.yaml",
)


def settings(urls: list[str], **more: Any) -> dict[str, Any]:
    """The config a trainer composes."""
    return {
        "config_paths": [str(ROOT / path) for path in CONFIGS],
        "policy_base_url": urls,
        "policy_api_key": "dummy_key",
        "policy_model_name": "m",
        "head_server": {"host": "0.0.0.0", "port": free_port()},
        "global_aiohttp_connector_limit_per_host": 16384,
        "global_aiohttp_connector_limit": 65536,
        "skip_venv_if_present": True,
        "a_key_of_the_trainer": {"nobody": "knows"},
        "policy_model": {"responses_api_models": {"vllm_model": {"uses_reasoning_parser": False}}},
        **more,
    }


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Started]:
    """Starts servers as NeMo RL does, before engines that are given; they are ended with the test."""
    monkeypatch.setattr(global_config, "_GLOBAL_CONFIG_DICT", None)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with ExitStack() as stack:

        def start(*engines: Engine, **more: Any) -> NemoRL:
            urls = [stack.enter_context(serving(engine)) for engine in engines]
            gym = NemoRL(settings(urls, **more), dotenv_path=tmp_path / "nemo_gym_env.yaml")
            stack.callback(gym.shutdown)
            gym.spin_up()
            return gym

        yield start
