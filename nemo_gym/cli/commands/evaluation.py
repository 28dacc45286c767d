"""`gym eval …`."""

from argparse import Namespace

from nemo_gym.cli.commands.command import Command
from nemo_gym.cli.commands.flag_sets import (
    BENCHMARK,
    CONFIG,
    FILE,
    HEALTH,
    INPUT,
    OUTPUT,
    PROMPT,
    REQUIRE_COMPLETE,
    SEARCH_DIR,
    START,
)
from nemo_gym.cli.dispatch import dispatch
from nemo_gym.cli.flags import LiteralFlag, SwitchFlag, TextFlag

COLLECT = (
    SwitchFlag(names=("--no-serve",), help="use the servers that already run instead of starting some"),
    SwitchFlag(names=("--resume",), key="resume_from_cache", help="go on with the results that are already there"),
    SwitchFlag(
        names=("--resume-anyway",), key="resume_anyway", help="go on although config, model, input or code differ"
    ),
    SwitchFlag(names=("--overwrite",), key="overwrite", help="delete the results that are already there"),
    REQUIRE_COMPLETE,
    TextFlag(names=("--agent", "-a"), key="agent_name", metavar="NAME", help="the agent instance that gets the rows"),
    INPUT,
    OUTPUT,
    LiteralFlag(names=("--limit",), key="limit", metavar="N", help="use only the first N rows; 0 means all"),
    LiteralFlag(
        names=("--num-repeats",), key="num_repeats", metavar="N", help="rollouts per row, or {agent: N, _default: N}"
    ),
    SwitchFlag(
        names=("--interleave-repeats",), key="interleave_repeats", help="run every row once before any row again"
    ),
    PROMPT,
    LiteralFlag(
        names=("--concurrency",), key="num_samples_in_parallel", metavar="N", help="rollouts in flight at once"
    ),
    TextFlag(
        names=("--split",), key="split", metavar="SPLIT", help="the rows of the data sets declared for this split"
    ),
    LiteralFlag(
        names=("--temperature",),
        key="responses_create_params.temperature",
        metavar="T",
        help="sampling temperature of every row",
    ),
    LiteralFlag(names=("--top-p",), key="responses_create_params.top_p", metavar="P", help="top-p of every row"),
    LiteralFlag(
        names=("--max-output-tokens",),
        key="responses_create_params.max_output_tokens",
        metavar="N",
        help="token limit of every answer",
    ),
    SwitchFlag(names=("--disable-aggregation",), key="disable_aggregation", help="compute no metrics at the end"),
    *HEALTH,
)


def _eval_run(args: Namespace, overrides: list[str]) -> None:
    from nemo_gym.errors import UsageError

    if args.no_serve and args.agent_type:
        raise UsageError(
            "--agent-type composes servers, which --no-serve does not start: choose a running one by --agent."
        )
    if args.no_serve:
        from nemo_gym.cli.no_serve import warn_of_unheeded

        warn_of_unheeded(args, overrides)
    dispatch("nemo_gym.cli.eval:" + ("collect_rollouts" if args.no_serve else "e2e_rollout_collection"), overrides)


EVALUATION = {
    "eval prepare": Command(
        "nemo_gym.cli.eval:prepare_benchmark",
        "run the scripts that fetch and write the benchmarks' rows",
        (CONFIG, BENCHMARK, SEARCH_DIR),
        example="gym eval prepare --benchmark NAME",
        config="nemo_gym.cli.command_configs:PrepareBenchmarkConfig",
    ),
    "eval run": Command(
        _eval_run,
        "run an agent on tasks and score the results",
        (*START, *COLLECT),
        words=FILE,
        example="gym eval run --resources-server mcqa --output results/mcqa.jsonl --limit 5",
        config="nemo_gym.rollout_collection:EvalRunConfig",
    ),
    "eval aggregate": Command(
        "nemo_gym.cli.eval:aggregate_rollouts",
        "merge result files and compute their metrics",
        (
            CONFIG,
            TextFlag(
                names=("--input-glob", "-i"), key="input_glob", metavar="GLOBS", help="result files, comma separated"
            ),
            OUTPUT,
            SwitchFlag(
                names=("--merge-anyway",),
                key="merge_anyway",
                help="merge files of differing runs, or with rollouts that several of them hold",
            ),
            REQUIRE_COMPLETE,
            *HEALTH,
        ),
        example="gym eval aggregate --input-glob 'results/part-*.jsonl' --output results/all.jsonl",
        config="nemo_gym.rollout_collection:RolloutAggregationConfig",
    ),
    "eval profile": Command(
        "nemo_gym.cli.eval:reward_profile",
        "compute rewards and pass rates per task from results",
        (
            TextFlag(
                names=("--inputs",),
                key="materialized_inputs_jsonl_fpath",
                metavar="FILE",
                help="the ..._materialized_inputs.jsonl of the run",
            ),
            TextFlag(names=("--rollouts",), key="rollouts_jsonl_fpath", metavar="FILE", help="the results of the run"),
        ),
        example="gym eval profile --inputs r_materialized_inputs.jsonl --rollouts r.jsonl",
        config="nemo_gym.cli.command_configs:RewardProfileConfig",
    ),
}
