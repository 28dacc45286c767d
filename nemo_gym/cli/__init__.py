"""The `gym` command line. Names that once lived here import from their old home with a warning."""

from nemo_gym.cli._compat import moved_attr_getter

_ENV_NAMES = (
    "RunHelper",
    "RunConfig",
    "TestConfig",
    "TestAllConfig",
    "PipListConfig",
    "run",
    "test",
    "test_all",
    "init_resources_server",
    "dump_config",
    "status",
    "pip_list",
)

__getattr__ = moved_attr_getter(
    __name__,
    {
        **dict.fromkeys(_ENV_NAMES, "nemo_gym.cli.env"),
        "e2e_rollout_collection": "nemo_gym.cli.eval",
        "dev_test": "nemo_gym.cli.dev",
        "VersionConfig": "nemo_gym.cli.general",
        "version": "nemo_gym.cli.general",
        "GlobalConfigDictParserConfig": "nemo_gym.global_config",
    },
)
