"""The script of one job, put together."""

import os
import shlex
import sys

from nemo_gym.orchestration.api import SlurmCompute
from nemo_gym.orchestration.plan import JobPlan
from nemo_gym.orchestration.script.directives import directives
from nemo_gym.orchestration.script.functions import FUNCTIONS
from nemo_gym.orchestration.script.nodes import nodes
from nemo_gym.orchestration.script.resuming import prologue
from nemo_gym.orchestration.script.starting import log_of, start, wait_until_free, wait_until_ready
from nemo_gym.orchestration.steps import Step
from nemo_gym.orchestration.values import identifier

_COLLECTOR_GRACE_SECONDS = 20

_FRESH = """: > "$gym_dir/.gym_pids"
rm -f "$gym_dir/.gym_reason"
"""

_DRIVE = r"""gym_say "the driver runs; its log is $gym_dir/logs/driver-$gym_run.log"
while kill -0 "$gym_driver" 2>/dev/null; do
  gym_check
  sleep 1
done
gym_code=0
wait "$gym_driver" || gym_code=$?
gym_driver=""
if [ "$gym_code" -ne 0 ]; then
  printf '%s\n' "The driver ended with exit code $gym_code." > "$gym_dir/.gym_reason"
  tail -n 40 "$gym_dir/logs/driver-$gym_run.log" >&2 || true
fi
gym_say "the driver ended with exit code $gym_code"
"""


def job_script(plan: JobPlan) -> str:
    """A bash script: directives, resumption, nodes, services, their health, the driver."""
    compute = plan.config.the_compute
    parts = ["#!/bin/bash\n"]
    if isinstance(compute, SlurmCompute):
        parts[0] += directives(compute, plan.benchmark, plan.folder)
    parts += [_settings(plan), FUNCTIONS]
    if isinstance(compute, SlurmCompute):
        parts.append(prologue(plan.resume))
    else:
        parts.append(_own_programs())
    parts += [_FRESH, nodes(plan.deployment)]
    if plan.collector is not None:
        parts += _ready(plan, [plan.collector])
    if plan.services:
        parts += _ready(plan, plan.services)
    parts += [_driver(plan), _DRIVE]
    if plan.collector is not None:
        parts.append(_end_collector())
    parts.append('exit "$gym_code"\n')
    return "\n".join(part for part in parts if part)


def _settings(plan: JobPlan) -> str:
    run = "${SLURM_JOB_ID:?is set by Slurm: submit this script with sbatch}"
    if plan.deployment.is_local:
        run = "${GYM_LOCAL_RUN:-1}"
    return (
        "set -uo pipefail\n"
        f"gym_dir={shlex.quote(plan.folder)}\n"
        f'gym_run="{run}"\n'
        'export GYM_JOB_DIR="$gym_dir"\n'
        'mkdir -p "$gym_dir/logs" "$gym_dir/artifacts" "$gym_dir/otel"\n'
    )


def _own_programs() -> str:
    """On this machine, `gym` is the one that submitted."""
    return f'export PATH={shlex.quote(os.path.dirname(sys.executable))}:"$PATH"\n'  # noqa: PTH120 - symlinks kept


def _ready(plan: JobPlan, steps: list[Step]) -> list[str]:
    """Start all, then wait for each: they get ready side by side."""
    layout, is_local = plan.deployment.layout, plan.deployment.is_local
    started = [
        f"# {step.name}\n{start(step, layout, is_local=is_local)}"
        f'gym_watch {shlex.quote(step.name)} "${_pid(step)}" {log_of(step)}\n'
        for step in steps
    ]
    free, ready = ("".join(wait(step) for step in steps) for wait in (wait_until_free, wait_until_ready))
    return [free, *started, ready]


def _driver(plan: JobPlan) -> str:
    text = start(plan.driver, plan.deployment.layout, is_local=plan.deployment.is_local)
    return f'# driver\n{text}gym_driver="$DRIVER_PID"\nprintf \'%s\\n\' "$gym_driver" >> "$gym_dir/.gym_pids"\n'


def _pid(step: Step) -> str:
    return f"{identifier(step.name)}_PID"


def _end_collector() -> str:
    return (
        f'sleep "${{GYM_COLLECTOR_GRACE_SECONDS:-{_COLLECTOR_GRACE_SECONDS}}}"\n'
        'gym_say "ending the collector"\ngym_end 30 "$OTEL_PID"\n'
    )
