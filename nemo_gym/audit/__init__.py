"""Auditing an environment: whether doing nothing and known tricks pay, and whether the right answer does.

An environment says what the right answer to a row is in `AUDIT`, in an `audit.py` beside its `app.py`.
"""

from nemo_gym.audit.statement import Audit, Judge, Row
from nemo_gym.testing.replies import Replies, Reply, call

__all__ = ["Audit", "Judge", "Replies", "Reply", "Row", "call"]
