"""`gym eval`: run agents on tasks, prepare benchmarks, and compute metrics from what was recorded."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nemo_gym.cli.dispatch import typed
from nemo_gym.config.keys import RESPONSES_API_AGENTS
from nemo_gym.errors import UsageError

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from nemo_gym.cli.command_configs import PrepareBenchmarkConfig as PrepareBenchmarkConfig

_EXAMPLE = "gym eval run --resources-server mcqa --output results/mcqa.jsonl --limit 5"
TERMINATED_EXIT_CODE, INTERRUPTED_EXIT_CODE = 75, 130


def __getattr__(name: str) -> Any:
    if name == "PrepareBenchmarkConfig":
        from nemo_gym.cli.command_configs import PrepareBenchmarkConfig

        return PrepareBenchmarkConfig
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@contextmanager
def _exit_codes_of_signals() -> Iterator[None]:
    """Let a signal that arrives while nothing is collected yet end the run with the code that says so."""
    from nemo_gym.launch.signals import StopRequested, stop_signals

    try:
        with stop_signals():
            yield
    except StopRequested as stop:
        code = INTERRUPTED_EXIT_CODE if stop.signum == signal.SIGINT else TERMINATED_EXIT_CODE
        raise SystemExit(code) from None


def e2e_rollout_collection() -> None:
    """Choose the rows, start the servers, collect, score, and stop the servers, whatever happened."""
    from nemo_gym.cli.composing import while_the_fork_server_imports

    with _exit_codes_of_signals(), while_the_fork_server_imports():
        _serve_and_collect()


def _serve_and_collect() -> None:
    from nemo_gym.cli import env
    from nemo_gym.cli.composing import with_default_model
    from nemo_gym.cli.health_line import check_health_of_run
    from nemo_gym.cli.server_warnings import WarningsOnly
    from nemo_gym.cli.utils import is_verbose
    from nemo_gym.config.errors import NoServerInstancesError
    from nemo_gym.global_config import GlobalConfigDictParser, GlobalConfigDictParserConfig
    from nemo_gym.launch.restarts import DEFAULT_RESTARTS
    from nemo_gym.rollout_collection import EvalRunConfig, prepare_collection, run_collection

    config = with_default_model()
    wanted = EvalRunConfig.model_validate(config)
    try:
        GlobalConfigDictParser().raise_on_no_server_instances(config)
    except NoServerInstancesError as error:
        raise UsageError(f"{error} Example: {_EXAMPLE}") from None
    _check_agent(wanted.agent_name, config)
    prepared = prepare_collection(wanted, config)
    server_output = sys.stdout if is_verbose() else WarningsOnly(sys.stderr)
    helper = env.RunHelper(server_output=server_output, restarts=DEFAULT_RESTARTS, placement="auto", head_may_move=True)
    helper.start(GlobalConfigDictParserConfig())
    try:
        if not config.get("dry_run"):
            run_collection(prepared, config, argv=typed or None, watch=helper.poll)
    finally:
        helper.shutdown()
    if not config.get("dry_run"):
        check_health_of_run(prepared)


def _check_agent(name: str | None, config: "DictConfig") -> None:
    """See that --agent names one of the agents to be started; a driver of its own may mean others by it."""
    from nemo_gym.config.errors import ConfigError
    from nemo_gym.config.hints import did_you_mean
    from nemo_gym.config.instances import server_instances

    if name is None or config.get("rollout_collection_driver"):
        return
    agents = [each.name for each in server_instances(config) if each.server_type == RESPONSES_API_AGENTS]
    if name not in agents:
        known = ", ".join(agents) or "none"
        raise ConfigError(f"--agent {name}: the config has no such agent, but {known}.{did_you_mean(name, agents)}")


def collect_rollouts() -> None:
    """Collect against the servers that already run, and score."""
    from nemo_gym.cli.composing import without_model
    from nemo_gym.cli.health_line import check_health_of_run
    from nemo_gym.rollout_collection import EvalRunConfig, collect_from_running_servers

    with _exit_codes_of_signals():
        config = EvalRunConfig.model_validate(without_model())
        check_health_of_run(collect_from_running_servers(config, argv=typed or None))


def aggregate_rollouts() -> None:
    """Merge result files and compute their metrics on the running servers."""
    import asyncio

    from nemo_gym.cli.composing import without_model
    from nemo_gym.cli.health_line import check_health
    from nemo_gym.rollout_collection import RolloutAggregationConfig, RolloutAggregationHelper
    from nemo_gym.rollout_export import exporters_of
    from nemo_gym.rollouts.shards import shard_paths

    global_config = without_model()
    config = RolloutAggregationConfig.model_validate(global_config)
    with _exit_codes_of_signals(), exporters_of(global_config):
        asyncio.run(RolloutAggregationHelper().run_from_config(config))
    check_health(config, () if config.merge_shards else shard_paths(config.input_glob))


def reward_profile() -> None:
    """Write rewards and pass rates per task, per agent and per repeat beside a run's results."""
    from nemo_gym.cli.command_configs import RewardProfileConfig
    from nemo_gym.cli.composing import without_model
    from nemo_gym.results.profile import profile

    config = RewardProfileConfig.model_validate(without_model())
    inputs, rollouts = Path(config.materialized_inputs_jsonl_fpath), Path(config.rollouts_jsonl_fpath)
    if _holds_results(inputs) and not _holds_results(rollouts):
        raise UsageError(f"--inputs {inputs} holds results and --rollouts {rollouts} none: they are swapped.")
    files = profile(inputs, rollouts, config.allow_partial_rollouts)
    for name, count in files.completion.items():
        print(f"{name}: {count}")
    print(f"Profiling outputs:\n{files.reward_profiling}\n{files.agent_metrics}\n{files.repeat_level_metrics}")


def _holds_results(path: Path) -> bool:
    """Whether the first line of a file is a record of a rollout; False where it can't be read as one."""
    import json

    try:
        with path.open(encoding="utf-8") as lines:
            record = json.loads(next(lines, "null"))
    except (OSError, ValueError):
        return False
    return isinstance(record, dict) and ("reward" in record or "response" in record)


def prepare_benchmark() -> None:
    """Run the scripts that write the rows of the chosen benchmarks."""
    from tqdm import tqdm

    from nemo_gym.cli.command_configs import PrepareBenchmarkConfig
    from nemo_gym.cli.composing import without_model
    from nemo_gym.cli.preparation import preparations, prepare_all
    from nemo_gym.config.instances import server_instances

    config = without_model()
    wanted = PrepareBenchmarkConfig.model_validate(config)
    chosen = preparations(server_instances(config))
    if wanted.use_cached_prepared_benchmarks:
        for preparation in filter(lambda preparation: preparation.is_done, chosen):
            print(f"{preparation.dataset}: using {preparation.rows}, which is there already.")
        chosen = [preparation for preparation in chosen if not preparation.is_done]
    if not chosen:
        return
    done = prepare_all(chosen, wanted.prepare_script_args, wanted.num_prepare_benchmark_processes)
    for preparation, path in tqdm(done, total=len(chosen), desc="Preparing"):
        tqdm.write(f"{preparation.dataset} of {preparation.instance}:\n  {path}", file=sys.stdout)


def list_benchmarks() -> None:
    """List the benchmarks with who answers them and how often; kept for those who import it."""
    from nemo_gym.cli.benchmark_list import list_benchmarks as print_list

    print_list()
