from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nemo_gym import global_config
from tests.e2e.harness import ROOT
from tests.ports import free_port
from tests.trainers.readers import NemoRL
from tests.trainers.vllm import Engine, serving

Started = Callable[..., NemoRL]
PORTS = (23000, 23400)
CONFIGS = (
    "resources_servers/example_single_tool_call/configs/example_single_tool_call.yaml",
    "resources_servers/mcqa/configs/mcqa.yaml",
    "responses_api_models/vllm_model/configs/vllm_model_for_training.yaml",
)


@dataclass(frozen=True)
class Trainer:
    gym: NemoRL
    engine: Engine


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


@contextmanager
def starting(folder: Path) -> Iterator[Started]:
    """Starts servers as NeMo RL does, before engines that are given; they are ended with the block."""
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setattr(global_config, "_GLOBAL_CONFIG_DICT", None)
        patch.setenv("XDG_RUNTIME_DIR", str(folder))

        def start(*engines: Engine, **more: Any) -> NemoRL:
            urls = [stack.enter_context(serving(engine)) for engine in engines]
            gym = NemoRL(settings(urls, **more), dotenv_path=folder / "nemo_gym_env.yaml")
            stack.callback(gym.shutdown)
            gym.spin_up()
            return gym

        yield start


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    """For a test that needs servers of its own."""
    with starting(tmp_path) as start:
        yield start


@pytest.fixture(scope="module", params=[False, True], ids=["true", "drifting"])
def trainer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainer]:
    """Servers before one engine, for several tests; one that drifts doesn't encode answers as it sampled them."""
    with starting(tmp_path_factory.mktemp("trainer")) as start:
        engine = Engine(drift=request.param)
        yield Trainer(
            start(engine, default_host="127.0.0.1", port_range_low=PORTS[0], port_range_high=PORTS[1]), engine
        )
