"""The fields of a row that belong to the task: the step that should come next."""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from nemo_gym.task_data import consumed_by


class MessageAction(BaseModel):
    """Saying something; what is not compared."""

    type: Literal["message"] = "message"
    content: str


class FunctionCallAction(BaseModel):
    """Calling a function, with its arguments as JSON text."""

    type: Literal["function_call"] = "function_call"
    name: str
    arguments: str


class FunctionCallBatchAction(BaseModel):
    """Calling several functions at once, in any order."""

    type: Literal["function_call_batch"] = "function_call_batch"
    calls: list[FunctionCallAction] = Field(min_length=1)


ExpectedAction: TypeAlias = Annotated[
    MessageAction | FunctionCallAction | FunctionCallBatchAction, Field(discriminator="type")
]


class TaskData(BaseModel):
    """One step of a trajectory. What came before it, and the tools, are in `responses_create_params`."""

    model_config = ConfigDict(extra="allow")

    expected_action: Annotated[ExpectedAction, consumed_by("verify")]
    trajectory_id: Annotated[Any, consumed_by("provenance")] = None
    info: Annotated[Any, consumed_by("provenance")] = None
    meta_info: Annotated[Any, consumed_by("provenance")] = None
    pass_rate: Annotated[float | None, consumed_by("provenance")] = None
    pass_rate_total: Annotated[int | None, consumed_by("provenance")] = None
    pass_rate_passed: Annotated[int | None, consumed_by("provenance")] = None
