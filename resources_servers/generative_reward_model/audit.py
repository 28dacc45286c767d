"""What the audit of this environment knows."""

import json
from typing import Any

from nemo_gym.audit import Audit, Row

NAMES = ("score_1", "score_2", "ranking")


def evaluation(row: Row) -> dict[str, Any]:
    """All scores as they should be; those the row says nothing of are in the middle."""
    gold = row.get("ground_truth_overall") or {}
    rubrics = row.get("ground_truth_rubric_scores") or [{"rubric_id": 1}]
    filled = [{name: scores.get(name) or 3 for name in NAMES} for scores in (gold, *rubrics)]
    numbered = [{"rubric_id": rubric["rubric_id"], **own} for rubric, own in zip(rubrics, filled[1:], strict=True)]
    return {"rubric_evaluations": numbered, "overall": filled[0]}


def reference(row: Row) -> str:
    return json.dumps(evaluation(row))


def several(row: Row) -> str:
    """The right scores, and others to choose from."""
    said = evaluation(row)
    return "\n".join(json.dumps({**said, "overall": {**said["overall"], "ranking": rank}}) for rank in range(1, 7))


AUDIT = Audit(reference=reference, full=0.0, low=-1.0, tricks={"several evaluations": several})
