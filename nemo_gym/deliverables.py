"""Which of the files an agent leaves behind are its work, and which are the harness's own notes."""

from nemo_gym.rollouts.deliverables import IGNORE_FILES, is_deliverable

__all__ = ["IGNORE_FILES", "is_deliverable"]
