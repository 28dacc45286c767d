"""What a collection can be told, as the commands and trainers configure it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field, PrivateAttr, field_validator, model_validator

from nemo_gym.config.command_models import BaseNeMoGymCLIConfig, UploadRolloutsConfigMixin
from nemo_gym.config.errors import ConfigError
from nemo_gym.config.keys import ROLLOUT_INDEX_KEY_NAME, TASK_INDEX_KEY_NAME
from nemo_gym.rollouts.errors import IncompleteRunError
from nemo_gym.rollouts.keys import NG_FAILURE_CLASS_KEY
from nemo_gym.rollouts.outputs import ResultSet
from nemo_gym.rollouts.skills import SkillsConfig

if TYPE_CHECKING:
    from nemo_gym.rollouts.sources import RowFile

DEFAULT_AGENT_KEY = "_default"
_TRY_AGAIN = "Run again with --resume to try them again."
_OTHER_KEYS = ("upload_rollouts_to_wandb", "h", "help")

RoutingMode: TypeAlias = Literal["agent", "legacy", "taskset"]
Split: TypeAlias = Literal["train", "validation", "benchmark"]
RepeatCount: TypeAlias = Annotated[int, Field(ge=1)]


class _FromGlobalConfig(BaseNeMoGymCLIConfig):
    """Takes its own fields out of the global config, resolved, and leaves the rest of it unread."""

    @model_validator(mode="before")
    @classmethod
    def _take_own_fields(cls, values: object) -> object:
        from omegaconf import DictConfig, OmegaConf

        if not isinstance(values, DictConfig):
            return values
        names = [name for name in (*cls.model_fields, *_OTHER_KEYS) if name in values]
        found = {name: values[name] for name in names}
        return {
            name: OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
            for name, value in found.items()
        }


class SharedRolloutCollectionConfig(_FromGlobalConfig, UploadRolloutsConfigMixin):
    """Collect rollouts and score them."""

    output_jsonl_fpath: str = Field(description="File the records are written to.")
    require_complete: bool = Field(default=False, description="Fail when a rollout is missing from the score.")
    num_samples_in_parallel: int | None = Field(default=None, gt=0, description="Rollouts in flight at once.")
    max_resident_rollout_tasks: int | None = Field(default=None, ge=1, description="Rollouts held in memory at once.")
    retain_results_in_memory: bool = Field(default=True, description="Keep and return every result.")
    responses_create_params: dict[str, Any] = Field(
        default_factory=dict, description="Request parameters that override those of every row."
    )
    disable_aggregation: bool = Field(default=False, description="Compute no metrics at the end.")
    disable_health_check: bool = Field(default=False, description="Skip the health checks at the end.")
    health_check_workers: int | None = Field(default=None, ge=1, description="Processes that check.")
    health_check_ignored_checks: list[str] = Field(default_factory=list, description="Checks to leave out.")
    count_failure_classes_as_zero: list[str] = Field(
        default_factory=list, description="Failure classes whose rollouts count with reward 0."
    )
    count_missing_rollouts_as_zero: bool = Field(
        default=False, description="Count rollouts without any record with reward 0."
    )
    route_failures_to_sidecar: bool = Field(
        default=False,
        description="Record failed rollouts in the failures file and go on. Collections do so unless it is set to "
        "false; `run_examples` only where it is asked to.",
    )
    rollout_collection_driver: str | None = Field(
        default=None, description="module.path:function that collects instead of Gym."
    )
    environment_routing_mode: RoutingMode = Field(default="agent", description="How rows find their server.")
    environment_server_name: str | None = Field(default=None, description="The server of every row in mode legacy.")
    environment_server_routes: dict[str, str] = Field(
        default_factory=dict, description="Environment server of each task set."
    )

    @field_validator("health_check_ignored_checks", mode="before")
    @classmethod
    def _validate_health_check_ignored_checks(cls, value: object) -> object:
        return [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value

    @model_validator(mode="after")
    def validate_environment_routing(self) -> Self:
        if self.environment_routing_mode == "legacy" and not self.environment_server_name:
            raise ValueError("environment_routing_mode=legacy needs environment_server_name")
        if self.environment_routing_mode == "taskset" and not self.environment_server_routes:
            raise ValueError(
                "environment_routing_mode=taskset needs environment_server_routes; with --no-serve too they are this "
                "command's own, not those of the running servers: pass their --config again"
            )
        return self

    @property
    def result_set(self) -> ResultSet:
        return ResultSet(Path(self.output_jsonl_fpath))

    def check_completion(
        self,
        *,
        expected: int,
        results: int | Sequence[Mapping[str, Any]],
        next_step: Callable[[], str] = lambda: _TRY_AGAIN,
    ) -> None:
        """Raise IncompleteRunError when `require_complete` is set and fewer than `expected` rollouts were measured.

        `results` is their number, or the results themselves, as drivers hand them over. `next_step` gives the sentence
        that says what can be done about it.
        """
        measured = results if isinstance(results, int) else _measured(results)
        if self.require_complete and measured < expected:
            raise IncompleteRunError(
                f"EVAL FAILED: {measured}/{expected} samples completed. The failed ones are listed in "
                f"{self.result_set.failures}. {next_step()}"
            )


def _measured(results: Sequence[Mapping[str, Any]]) -> int:
    """How many different rollouts have a result that is no failure."""
    identity = ("stage_index", TASK_INDEX_KEY_NAME, ROLLOUT_INDEX_KEY_NAME)
    return len({tuple(map(r.get, identity)) for r in results if r.get(NG_FAILURE_CLASS_KEY) is None})


class RolloutCollectionConfig(SharedRolloutCollectionConfig):
    """Run the rows of a file through agents that are being served, and score them."""

    agent_name: str | None = Field(default=None, description="Agent instance that gets the rows.")
    agent_map: dict[str, str] | None = Field(
        default=None, description="Agent for the rows of an agent or task source; `_default` for the rest."
    )
    fan_out: dict[str, list[str]] | None = Field(
        default=None, description="Agents that each get the rows of an agent or task source."
    )
    input_jsonl_fpath: str = Field(description="File of rows.")
    limit: int | None = Field(default=None, ge=0, description="Use only the first rows; 0 means all.")
    num_repeats: RepeatCount | dict[str, RepeatCount] = Field(default=1, description="Rollouts of every row.")
    num_repeats_add_seed: bool = Field(default=False, description="Give each repeat its number as sampling seed.")
    interleave_repeats: bool = Field(default=False, description="Run every row once before any row again.")
    resume_from_cache: bool = Field(default=False, description="Go on with the results that are there.")
    resume_anyway: bool = Field(
        default=False, description="Go on although config, model, input or code differ; the books say that it was so."
    )
    overwrite: bool = Field(default=False, description="Delete the results that are there.")
    prompt_config: str | None = Field(default=None, description="Prompt templates for rows without an input.")
    skills: SkillsConfig | None = Field(default=None, description="Skill folder given to the agents.")
    dispatch_budget_s: float | None = Field(default=None, ge=0, description="Seconds after which no row is started.")
    rollout_timeout_s: float | None = Field(
        default=None, gt=0, description="Seconds a rollout may take, its retries included; then it has failed."
    )
    drain_margin_s: float | None = Field(default=None, ge=0, description="Seconds kept free at the budget's end.")
    dispatch_longest_first: bool = Field(default=False, description="On resume, start rows known to be slow first.")
    retry_terminal_timeouts: bool = Field(default=False, description="On resume, try timed-out rows again.")
    retry_invalid_judge_responses: bool = Field(
        default=False, description="On resume, try rows again whose judge's answer was unusable."
    )

    _row_files: tuple[RowFile, ...] = PrivateAttr(default=())

    @field_validator("num_repeats", mode="before")
    @classmethod
    def _coerce_null_num_repeats(cls, v: object) -> object:
        return 1 if v is None else v

    @model_validator(mode="after")
    def _fold_agent_name_into_agent_map(self) -> Self:
        if self.agent_name is None:
            return self
        default = (self.agent_map or {}).get(DEFAULT_AGENT_KEY)
        if default not in (None, self.agent_name):
            raise ValueError(
                f"agent_name is {self.agent_name} but agent_map sends unmapped rows to {default}: give one of them"
            )
        self.agent_map = {**(self.agent_map or {}), DEFAULT_AGENT_KEY: self.agent_name}
        return self

    @model_validator(mode="after")
    def _validate_num_repeats(self) -> Self:
        if self.num_repeats == {}:
            raise ValueError("num_repeats is empty: give a number, or one for each agent")
        return self

    @model_validator(mode="after")
    def _validate_dispatch_concurrency(self) -> Self:
        if self.dispatch_budget_s is not None and self.num_samples_in_parallel is None:
            raise ValueError("dispatch_budget_s needs num_samples_in_parallel")
        return self

    @model_validator(mode="after")
    def _validate_fan_out(self) -> Self:
        for name, agents in (self.fan_out or {}).items():
            if not agents:
                raise ValueError(f"fan_out.{name} is empty")
            if len(set(agents)) < len(agents):
                raise ValueError(f"fan_out.{name} names an agent twice")
        return self

    @model_validator(mode="after")
    def _validate_existing_results(self) -> Self:
        if self.resume_anyway and not self.resume_from_cache:
            self.resume_from_cache = True
        if self.overwrite and self.resume_from_cache:
            raise ValueError("overwrite and resume_from_cache exclude each other")
        return self

    @property
    def materialized_jsonl_fpath(self) -> Path:
        return self.result_set.materialized

    @property
    def row_files(self) -> tuple[RowFile, ...]:
        """The files the rows are read from: those chosen for the run, else the input file."""
        from nemo_gym.rollouts.sources import RowFile, existing_input

        return self._row_files or (RowFile(existing_input(self.input_jsonl_fpath)),)

    def with_rows(self, files: tuple[RowFile, ...], **fields: Any) -> Self:
        """A copy that reads these files, with some fields set."""
        copy = self.model_copy(update={"input_jsonl_fpath": str(files[0].path), **fields})
        copy._row_files = files
        return copy

    @property
    def keeps_failures_as_rows(self) -> bool:
        """Whether a failed rollout becomes a row of the failures file: yes, unless the opposite was asked for."""
        return self.route_failures_to_sidecar or "route_failures_to_sidecar" not in self.model_fields_set


class EvalRunConfig(RolloutCollectionConfig):
    """`gym eval run`: the same, where rows and output file may be left to Gym."""

    output_jsonl_fpath: str = Field(default="", description="File the records are written to; a dated one when unset.")
    input_jsonl_fpath: str = Field(default="", description="File of rows; chosen among the declared ones when unset.")
    split: Split | Literal["example"] | None = Field(default=None, description="Split whose declared rows are used.")
    reuse_existing_data_preparation: bool = Field(
        default=False, description="Use the rows that an earlier run collated for this output."
    )

    @field_validator("input_jsonl_fpath")
    @classmethod
    def _refuse_empty_input(cls, value: str) -> str:
        if not value:
            raise ValueError("is empty, as from an unset variable: leave it out for the declared rows")
        return value


class E2ERolloutCollectionConfig(SharedRolloutCollectionConfig):
    """Collate the rows of a split, serve everything, collect and score."""

    split: Split = Field(description="Split whose declared rows are used.")
    reuse_existing_data_preparation: bool = Field(
        default=False, description="Use the rows that an earlier run collated for this output."
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse_input_file(cls, values: object) -> object:
        if isinstance(values, Mapping) and values.get("input_jsonl_fpath"):
            raise ConfigError(
                "An input file and a split exclude each other: add --no-serve to run the file against started "
                "servers, or drop --input."
            )
        return values

    @model_validator(mode="before")
    @classmethod
    def _refuse_example_split(cls, values: object) -> object:
        if isinstance(values, Mapping) and values.get("split") == "example":
            raise ConfigError(
                "Example rows are not a split to train or report on. Start the servers with `gym env start`, then run "
                "them by `gym eval run --no-serve --agent <agent> --input <.../data/example.jsonl> --output <file>`."
            )
        return values


class RolloutAggregationConfig(_FromGlobalConfig):
    """Merge result files of several runs and compute their metrics together."""

    input_glob: str = Field(description="Result files, comma separated globs.")
    output_jsonl_fpath: str = Field(description="File the merged records are written to.")
    merge_shards: bool = Field(default=True, description="Write the merged file.")
    merge_anyway: bool = Field(
        default=False, description="Merge files of differing runs, or with rollouts that several of them hold."
    )
    require_complete: bool = Field(default=False, description="Fail when a rollout is not measured.")
    count_failure_classes_as_zero: list[str] = Field(
        default_factory=list, description="Failure classes whose rollouts count with reward 0."
    )
    count_missing_rollouts_as_zero: bool = Field(
        default=False, description="Count rollouts without any record with reward 0."
    )
    disable_health_check: bool = Field(default=False, description="Skip the health checks at the end.")
    health_check_workers: int | None = Field(default=None, ge=1, description="Processes that check.")
    health_check_ignored_checks: list[str] = Field(default_factory=list, description="Checks to leave out.")

    @field_validator("health_check_ignored_checks", mode="before")
    @classmethod
    def _validate_health_check_ignored_checks(cls, value: object) -> object:
        return [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value
