"""The failure of a rollout, as one record."""

from nemo_gym.rollouts.outcomes import RolloutFailure

__all__ = ["RolloutFailure"]
