"""The shell text that starts a step: its variables, then `srun`, or on this machine a process group of its own."""

import shlex
from collections.abc import Iterator

from nemo_gym.orchestration.layout import Layout
from nemo_gym.orchestration.steps import Health, Step
from nemo_gym.orchestration.values import identifier


def start(step: Step, layout: Layout, *, is_local: bool) -> str:
    """Start a step in the background; its pid is in `<NAME>_PID`, its output in its log."""
    name = identifier(step.name)
    body = [*_variables(step), _here(step) if is_local else _srun(step, layout)]
    function = f"gym_start_{name.lower()}"
    return f"{function}() {{\n{_indented(body)}}}\n{function} &\n{name}_PID=$!\n"


def log_of(step: Step) -> str:
    return f'"$gym_dir/logs/{step.name}-$gym_run.log"'


def wait_until_ready(step: Step) -> str:
    """Wait for a step's health; nothing for one that has none to show."""
    health = step.health
    if health is None:
        return ""
    return "".join(
        f"gym_ready {step.name} {health.seconds} {_probe(health, f'${{gym_nodes[{node}]}}')}\n" for node in health.nodes
    )


def wait_until_free(step: Step) -> str:
    """Wait for a step's ports; the job fails where somebody else keeps one, who would answer in its place."""
    if step.health is None:
        return ""
    return "".join(
        f'gym_free {step.name} "${{gym_nodes[{node}]}}" {port}\n' for node in step.health.nodes for port in step.ports
    )


def _probe(health: Health, host: str) -> str:
    if health.path is None:
        return f'gym_probe_port "{host}" {health.port}'
    return f'gym_probe_http "http://{host}:{health.port}{health.path}"'


def _variables(step: Step) -> Iterator[str]:
    if step.env.private:
        yield "set -a"
        yield f'. "$gym_dir/env/{step.name}.env" || exit 1'
        yield "set +a"
    for name, value in step.env.public.items():
        yield f"export {name}={shlex.quote(value)}"
    for name, variable in step.env.runtime.items():
        yield f'export {name}="${{{variable}?has no value in the job, and {step.name} takes it from there}}"'


def _srun(step: Step, layout: Layout) -> str:
    span = step.span
    words = ["exec srun --overlap"]
    if layout.total > 1:
        words.append(f'--nodelist="$(gym_nodelist {span.first} {span.nodes})"')
    words.append(f"--nodes={span.nodes} --ntasks={span.nodes}")
    if step.container is not None:
        words.append("--no-container-mount-home")
        if step.mounts:
            words.append(f"--container-mounts={shlex.quote(','.join(step.mounts))}")
        words.append(f"--container-image={shlex.quote(step.container)}")
    words.append(f"--output={log_of(step)}")
    return " \\\n  ".join([*words, _shell(step)])


def _here(step: Step) -> str:
    return f"exec setsid {_shell(step)} \\\n  > {log_of(step)} 2>&1 < /dev/null"


def _shell(step: Step) -> str:
    return f"bash -c {shlex.quote(step.command)}"


def _indented(lines: list[str]) -> str:
    """Lines of a function's body; those inside of quotes stay as they are."""
    return "".join(f"  {line}\n" for line in lines)
