"""Old home of the benchmark commands, which live in `nemo_gym.cli.eval`."""

from nemo_gym.cli._compat import moved_attr_getter

__getattr__ = moved_attr_getter(
    __name__, dict.fromkeys(("list_benchmarks", "PrepareBenchmarkConfig", "prepare_benchmark"), "nemo_gym.cli.eval")
)
