"""NeMo Gym: environments for evaluating and training agents.

Importing the package is cheap; the public classes load when first used.
"""

import builtins
import functools
import importlib
import os
from typing import TYPE_CHECKING, Any

from nemo_gym.config.roots import (
    CACHE_DIR,
    NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME,
    PARENT_DIR,
    RESULTS_DIR,
    ROOT_DIR,
    WORKING_DIR,
    augment_sys_path,
    component_search_roots,
    resolve_under_roots,
)
from nemo_gym.package_info import (
    __contact_emails__,
    __contact_names__,
    __description__,
    __download_url__,
    __homepage__,
    __keywords__,
    __license__,
    __package_name__,
    __repository_url__,
    __shortversion__,
    __version__,
)

if TYPE_CHECKING:
    from nemo_gym.base_resources_server import (
        BaseMultiRewardVerifyResponse,
        BaseResourcesServerConfig,
        BaseRunRequest,
        BaseSeedSessionRequest,
        BaseSeedSessionResponse,
        BaseVerifyRequest,
        BaseVerifyResponse,
        ReverifyMode,
        SimpleResourcesServer,
    )
    from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, SimpleResponsesAPIAgent
    from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig, SimpleResponsesAPIModel
    from nemo_gym.config_types import (
        AggregateMetrics,
        AggregateMetricsRequest,
        BaseRunServerInstanceConfig,
        BaseServerConfig,
        Domain,
        ModelServerRef,
    )
    from nemo_gym.onefile.environment import Environment
    from nemo_gym.openai_utils import (
        NeMoGymAsyncOpenAI,
        NeMoGymChatCompletion,
        NeMoGymChatCompletionCreateParamsNonStreaming,
        NeMoGymResponse,
        NeMoGymResponseCreateParamsNonStreaming,
    )
    from nemo_gym.server_utils import SESSION_ID_KEY, ServerClient, get_response_json, raise_for_status
    from nemo_gym.testing.replies import call

_augment_sys_path = augment_sys_path
_resolve_under_cwd_or_install = resolve_under_roots

_LAZY_EXPORTS = {
    "base_resources_server": (
        "BaseResourcesServerConfig",
        "SimpleResourcesServer",
        "BaseRunRequest",
        "BaseVerifyRequest",
        "BaseVerifyResponse",
        "BaseMultiRewardVerifyResponse",
        "BaseSeedSessionRequest",
        "BaseSeedSessionResponse",
        "ReverifyMode",
    ),
    "base_responses_api_agent": ("BaseResponsesAPIAgentConfig", "SimpleResponsesAPIAgent"),
    "base_responses_api_model": ("BaseResponsesAPIModelConfig", "SimpleResponsesAPIModel"),
    "server_utils": ("ServerClient", "raise_for_status", "get_response_json", "SESSION_ID_KEY"),
    "config_types": (
        "BaseServerConfig",
        "BaseRunServerInstanceConfig",
        "Domain",
        "AggregateMetrics",
        "AggregateMetricsRequest",
        "ModelServerRef",
    ),
    "openai_utils": (
        "NeMoGymAsyncOpenAI",
        "NeMoGymResponse",
        "NeMoGymResponseCreateParamsNonStreaming",
        "NeMoGymChatCompletion",
        "NeMoGymChatCompletionCreateParamsNonStreaming",
    ),
    "onefile.environment": ("Environment",),
    "testing.replies": ("call",),
}
_MODULE_OF = {name: module for module, names in _LAZY_EXPORTS.items() for name in names}

__all__ = [
    "CACHE_DIR",
    "NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME",
    "PARENT_DIR",
    "RESULTS_DIR",
    "ROOT_DIR",
    "SESSION_ID_KEY",
    "WORKING_DIR",
    "AggregateMetrics",
    "AggregateMetricsRequest",
    "BaseMultiRewardVerifyResponse",
    "BaseResourcesServerConfig",
    "BaseResponsesAPIAgentConfig",
    "BaseResponsesAPIModelConfig",
    "BaseRunRequest",
    "BaseRunServerInstanceConfig",
    "BaseSeedSessionRequest",
    "BaseSeedSessionResponse",
    "BaseServerConfig",
    "BaseVerifyRequest",
    "BaseVerifyResponse",
    "Domain",
    "Environment",
    "ModelServerRef",
    "NeMoGymAsyncOpenAI",
    "NeMoGymChatCompletion",
    "NeMoGymChatCompletionCreateParamsNonStreaming",
    "NeMoGymResponse",
    "NeMoGymResponseCreateParamsNonStreaming",
    "ReverifyMode",
    "ServerClient",
    "SimpleResourcesServer",
    "SimpleResponsesAPIAgent",
    "SimpleResponsesAPIModel",
    "__contact_emails__",
    "__contact_names__",
    "__description__",
    "__download_url__",
    "__homepage__",
    "__keywords__",
    "__license__",
    "__package_name__",
    "__repository_url__",
    "__shortversion__",
    "__version__",
    "call",
    "component_search_roots",
    "get_response_json",
    "raise_for_status",
]


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})


def _prepare_process() -> None:
    """What components expect of any process that imported us: paths, caches, and output that appears at once."""
    _augment_sys_path()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ.setdefault("HF_HOME", str(CACHE_DIR / "huggingface"))
    os.environ.setdefault("HF_DATASETS_CACHE", str(CACHE_DIR / "huggingface"))
    if not isinstance(builtins.print, functools.partial):
        builtins.print = functools.partial(builtins.print, flush=True)


_prepare_process()
