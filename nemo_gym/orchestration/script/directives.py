"""What a job asks of Slurm: one request for all node pools."""

import shlex

from nemo_gym.orchestration.api import SlurmCompute


def directives(compute: SlurmCompute, benchmark: str, folder: str) -> str:
    """The `#SBATCH` lines."""
    pools = list(compute.node_pools.values())
    first = pools[0]
    options = [
        f"--job-name=gym-{benchmark}",
        *([f"--account={compute.account}"] if compute.account else []),
        *([f"--time={compute.walltime}"] if compute.walltime else []),
        f"--chdir={folder}",
        f"--output={folder}/logs/job-%j.log",
        *([f"--partition={first.partition}"] if first.partition else []),
        f"--nodes={sum(pool.nodes for pool in pools)}",
        f"--ntasks-per-node={first.ntasks_per_node}",
        *([f"--gpus-per-node={first.gpus_per_node}"] if first.gpus_per_node else []),
        *dict.fromkeys([*compute.extra_args, *(word for pool in pools for word in pool.extra_args)]),
    ]
    return "".join(f"#SBATCH {shlex.quote(option) if ' ' in option else option}\n" for option in options)
