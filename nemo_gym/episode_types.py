"""The episode protocol between collector and environment servers."""

from nemo_gym.schema.episodes import (
    BaseEpisodeRequest,
    BaseEpisodeResponse,
    EpisodeFailure,
    EpisodeId,
    EpisodeResultT,
    MaterializedTask,
    TaskId,
    TaskInputT,
    is_materialized_task_row,
)

__all__ = [
    "BaseEpisodeRequest",
    "BaseEpisodeResponse",
    "EpisodeFailure",
    "EpisodeId",
    "EpisodeResultT",
    "MaterializedTask",
    "TaskId",
    "TaskInputT",
    "is_materialized_task_row",
]
