"""The real command line, in this process and in an empty folder."""

from tests.unit.cli.conftest import gym

__all__ = ["gym"]
