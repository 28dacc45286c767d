"""What agents report about their runs, and the trajectory that is made of it."""

from nemo_gym.schema.observation_join import join_model_call_observations
from nemo_gym.schema.observations import (
    AgentInvocation,
    AgentObservationBundle,
    AgentObservationRecord,
    ContextCompactionObservation,
    ModelCallRef,
    ObservationGap,
    ObservationModel,
    SandboxObservation,
    ToolCallObservation,
)
from nemo_gym.schema.trajectories import (
    AgentEpisode,
    TrajectoryModelCall,
    TrajectoryRecord,
    TrajectoryResponseMetadata,
    TrajectoryTokenStats,
    TrajectoryToolCall,
    TrajectoryTurn,
)

__all__ = [
    "AgentEpisode",
    "AgentInvocation",
    "AgentObservationBundle",
    "AgentObservationRecord",
    "ContextCompactionObservation",
    "ModelCallRef",
    "ObservationGap",
    "ObservationModel",
    "SandboxObservation",
    "ToolCallObservation",
    "TrajectoryModelCall",
    "TrajectoryRecord",
    "TrajectoryResponseMetadata",
    "TrajectoryTokenStats",
    "TrajectoryToolCall",
    "TrajectoryTurn",
    "join_model_call_observations",
]
