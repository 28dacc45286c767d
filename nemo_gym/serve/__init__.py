"""How any server serves: its app and JSON routes, sessions, middleware, client and life as a process."""

import contextlib
import importlib

_HOT_MODULES = (
    "nemo_gym.base_resources_server",
    "nemo_gym.base_responses_api_agent",
    "nemo_gym.base_responses_api_model",
    "nemo_gym.anthropic_converter",
    "nemo_gym.chat_streaming",
    "nemo_gym.prompt",
    "nemo_gym.responses_converter",
    "nemo_gym.responses_streaming",
    "nemo_gym.rollout_observability",
    "nemo_gym.task_data",
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",
    "uvicorn.protocols.websockets.auto",
    "email.message",
    "multiprocessing",
)
_IF_INSTALLED = ("uvloop",)


def preload() -> None:
    """Import what servers need and finish building its types, so that a process forked from this one has them.

    Leaves no thread, event loop or descriptor behind.
    """
    for name in _HOT_MODULES:
        importlib.import_module(name)
    for name in _IF_INSTALLED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    importlib.import_module("nemo_gym.serve.warm_up").complete_types()
