"""Rows that become tasks of a taskset."""

from nemo_gym.config.task_materialization import materialize_task

__all__ = ["materialize_task"]
