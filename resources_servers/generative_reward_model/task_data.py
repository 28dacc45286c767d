"""The fields of a row that belong to the task."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict

from nemo_gym.task_data import consumed_by


class Gold(BaseModel):
    score_1: float | None = None
    score_2: float | None = None
    ranking: float | None = None


class RubricGold(Gold):
    rubric_id: int


class TaskData(BaseModel):
    """Scores that two answers should get. The prompt, with both answers, is in `responses_create_params`."""

    model_config = ConfigDict(extra="allow")

    id: Annotated[int | str, consumed_by("provenance")]
    ground_truth_overall: Annotated[Gold | None, consumed_by("verify")] = None
    ground_truth_rubric_scores: Annotated[list[RubricGold] | None, consumed_by("verify")] = None
