"""The global config, as different commands want it composed. Each call caches it for the rest of the process.

None of them opens experiment trackers: commands that have something to send do so themselves.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omegaconf import DictConfig


def composed() -> "DictConfig":
    """The config in full: the policy model's settings must be there."""
    from nemo_gym.global_config import GlobalConfigDictParserConfig, get_global_config_dict

    return get_global_config_dict(GlobalConfigDictParserConfig(skip_exporters=True))


def without_model() -> "DictConfig":
    """The config for work that needs no model: stand-ins fill in for the policy model and its settings."""
    from nemo_gym.global_config import GlobalConfigDictParserConfig, get_global_config_dict

    no_model = GlobalConfigDictParserConfig.NO_MODEL_GLOBAL_CONFIG_DICT
    return get_global_config_dict(
        GlobalConfigDictParserConfig(initial_global_config_dict=no_model, skip_exporters=True)
    )


def with_default_model() -> "DictConfig":
    """The config to start: servers that call a policy model which nothing defines get the embedded one, with a notice.

    Raises ConfigError where a server's block refers to something that nothing sets.
    """
    import sys

    from nemo_gym.config.default_model import default_model
    from nemo_gym.config.instances import server_instances
    from nemo_gym.config.interpolations import raise_on_unresolved
    from nemo_gym.config.notices import notify
    from nemo_gym.global_config import maybe_get_global_config_dict

    config = maybe_get_global_config_dict()
    if config is not None:
        return config
    model = default_model(sys.argv[1:])
    if model.notice:
        notify(model.notice)
    config = composed() if model.config_path is None else _with_model_config(model.config_path)
    raise_on_unresolved(config, within={instance.name for instance in server_instances(config)})
    return config


def _with_model_config(path: str) -> "DictConfig":
    """The config with one more file beneath all others: whatever else is set changes it."""
    from nemo_gym.global_config import GlobalConfigDictParserConfig, get_global_config_dict

    return get_global_config_dict(GlobalConfigDictParserConfig(fallback_config_paths=[path], skip_exporters=True))


@contextmanager
def while_the_fork_server_imports() -> Iterator[None]:
    """Start what will fork the servers before the config is composed: its imports take longer than that."""
    from nemo_gym.launch.fork_server import discard_prestarted, prestart

    prestart()
    try:
        yield
    finally:
        discard_prestarted()
