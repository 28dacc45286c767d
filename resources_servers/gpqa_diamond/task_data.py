"""The fields of a row that belong to the task: those of `mcqa`."""

from resources_servers.mcqa.task_data import TaskData

__all__ = ["TaskData"]
