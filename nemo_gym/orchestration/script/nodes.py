"""What a job script learns of its nodes, and exports to its steps."""

from nemo_gym.orchestration import ray_commands
from nemo_gym.orchestration.api import RayService
from nemo_gym.orchestration.deployment import Deployed, Deployment
from nemo_gym.orchestration.values import identifier
from nemo_gym.orchestration.vllm_commands import head_variable

_MANY = r"""mapfile -t gym_nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
if [ "${#gym_nodes[@]}" -ne @TOTAL@ ]; then
  gym_fail "The job has ${#gym_nodes[@]} nodes and was to have @TOTAL@."
fi
gym_nodelist() { local IFS=,; printf '%s' "${gym_nodes[*]:$1:$2}"; }
gym_ip() {  # node index
  local ip step="srun --overlap --nodes=1 --ntasks=1 --nodelist=${gym_nodes[$1]}"
  ip="$($step hostname -I 2>/dev/null | awk '{print $1; exit}')"
  printf '%s' "${ip:-${gym_nodes[$1]}}"
}
"""

_ONE = r"""gym_nodes=(localhost)
gym_ip() { local ip; ip="$(hostname -I 2>/dev/null | awk '{print $1; exit}')"; printf '%s' "${ip:-127.0.0.1}"; }
"""

_HERE = r"""gym_nodes=(localhost)
gym_ip() { printf 127.0.0.1; }
"""


def nodes(deployment: Deployment) -> str:
    """Shell text that sets `gym_nodes` and exports nodes, pools and the addresses of those that lead others."""
    layout = deployment.layout
    text = _HERE if deployment.is_local else _ONE if layout.total == 1 else _MANY
    lines = [f'export GYM_NODE_{index}="${{gym_nodes[{index}]}}"' for index in range(layout.total)]
    for name, span in layout.pools.items():
        value = f"$(gym_nodelist {span.first} {span.nodes})" if layout.total > 1 else "${gym_nodes[0]}"
        lines.append(f'export GYM_POOL_{identifier(name)}_NODES="{value}"')
    for deployed in deployment.services:
        lines += _leading(deployed, deployment)
    first = deployment.first_over_nodes()
    if first is not None:
        lines.append(f'export HEAD_NODE_IP="${head_variable(first.name)}"')
        lines.append('export RAY_HEAD_NODE_IP="$HEAD_NODE_IP:6379"')
    return text.replace("@TOTAL@", str(layout.total)) + "\n".join(lines) + "\n"


def _leading(deployed: Deployed, deployment: Deployment) -> list[str]:
    service, layout = deployed.service, deployment.layout
    if not isinstance(service, RayService):
        over_nodes = deployed.takes_gpus and deployed.span.nodes > 1
        return [f'export {head_variable(deployed.name)}="$(gym_ip {deployed.span.first})"'] if over_nodes else []
    address = ray_commands.address_variable(deployed.name)
    lines = [f'export {address}="$(gym_ip {deployed.span.first}):{service.port}"']
    for pool in ray_commands.pools_of(service, layout):
        count = len(ray_commands.workers_in(pool, deployed, layout))
        lines.append(f"export GYM_RAY_{identifier(deployed.name)}_{identifier(pool)}_WORKERS={count}")
    return lines
