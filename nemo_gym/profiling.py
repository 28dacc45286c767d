"""CPU profiles of a running server."""

from nemo_gym.serve.profiler import Profiler

__all__ = ["Profiler"]
