"""What the environment commands take from the global config."""

from typing import Any, Literal

from pydantic import Field

from nemo_gym.config_types import BaseNeMoGymCLIConfig


class RunConfig(BaseNeMoGymCLIConfig):
    """Start the servers of an environment."""

    entrypoint: str = Field(description="Server folder, <type>/<name>, for example resources_servers/mcqa.")


class TestConfig(RunConfig):
    """Run the tests of one server in its own venv."""

    __test__ = False

    should_validate_data: bool = Field(default=False, description="Also check the example data that must ship with it.")


class TestAllConfig(BaseNeMoGymCLIConfig):
    """Run the tests of every server."""

    __test__ = False

    fail_on_total_and_test_mismatch: bool = Field(default=False, description="Fail when a server has no tests.")
    delete_venvs_after_each_test: bool = Field(default=False, description="Delete each venv after its tests.")
    num_shards: int = Field(default=1, ge=1, description="Into how many parts the servers are split.")
    shard_index: int = Field(default=0, ge=0, description="Which part to test.")
    setup_only: bool = Field(default=False, description="Build the venvs and run nothing.")


class PipListConfig(RunConfig):
    """List the packages a server runs with."""

    format: Literal["columns", "freeze", "json"] | None = Field(default=None, description="Output format of uv.")
    outdated: bool = Field(default=False, description="Only packages with a newer version.")


class VersionConfig(BaseNeMoGymCLIConfig):
    """Print versions."""

    json_format: bool = Field(default=False, alias="json", description="Print JSON.")


class PrepareBenchmarkConfig(BaseNeMoGymCLIConfig):
    """Run the scripts that write the rows of benchmarks."""

    use_cached_prepared_benchmarks: bool = Field(default=False, description="Skip rows that are already there.")
    num_prepare_benchmark_processes: int = Field(default=1, ge=1, description="Scripts run at once.")
    prepare_script_args: dict[str, Any] = Field(
        default_factory=dict, description="Keyword arguments for every script's prepare()."
    )


class RewardProfileConfig(BaseNeMoGymCLIConfig):
    """Compute rewards and pass rates per task from a run's files."""

    materialized_inputs_jsonl_fpath: str = Field(description="The ..._materialized_inputs.jsonl of the run.")
    rollouts_jsonl_fpath: str = Field(description="The results of the run.")
    allow_partial_rollouts: bool = Field(default=False, description="Accept tasks with fewer rollouts than planned.")


class MaterializePromptsConfig(BaseNeMoGymCLIConfig):
    """Fill prompt templates from rows."""

    input_jsonl_fpath: str = Field(description="The rows.")
    prompt_config: str = Field(description="The prompt templates, YAML.")
    output_jsonl_fpath: str = Field(description="Where the filled rows are written.")
