"""Old home of `run_command` and `setup_env_command`, which live in `nemo_gym.cli.setup_command`."""

from nemo_gym.cli._compat import moved_attr_getter

__getattr__ = moved_attr_getter(
    __name__,
    {
        "run_command": "nemo_gym.cli.setup_command",
        "setup_env_command": "nemo_gym.cli.setup_command",
    },
)
