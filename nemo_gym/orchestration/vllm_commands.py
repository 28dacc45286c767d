"""The commands that serve a model: plain, over several nodes, behind Ray Serve, and in two tiers behind a router."""

import base64
import json
import re
import shlex
from pathlib import Path

from nemo_gym.orchestration.api import VllmPdService, VllmService
from nemo_gym.orchestration.deployment import Deployed
from nemo_gym.orchestration.values import identifier

_CLUSTER_WAIT_SECONDS = 600
_API_SERVERS = re.compile(r"--api-server-count(?:=|\s+)\S+\s*")


def model_command(deployed: Deployed) -> str:
    """Shell text that serves a deployed model until it is ended."""
    service = deployed.service
    assert isinstance(service, VllmService)
    if deployed.is_gateway:
        return _over_ray(deployed, _gateway(service, deployed.gpus_per_node), before=_unpack_gateway())
    if deployed.span.nodes == 1 or (deployed.pair is not None and deployed.pair.server_per_node):
        return _with_side_channel(deployed, f"exec {serve(deployed)}")
    if service.number_of_instances > 1:
        return _with_side_channel(deployed, _data_parallel(deployed))
    backend = "" if "--distributed-executor-backend" in service.extra_args else " --distributed-executor-backend ray"
    return _over_ray(deployed, serve(deployed) + backend, before=_with_side_channel(deployed, ""))


def serve(deployed: Deployed, *, counts_instances: bool = True) -> str:
    """`vllm serve` and its flags."""
    service = deployed.service
    assert isinstance(service, VllmService)
    words = ["vllm", "serve", service.model, "--port", str(service.port)]
    words += ["--tensor-parallel-size", str(service.tensor_parallel_size)]
    if service.served_model_name:
        words += ["--served-model-name", service.served_model_name]
    if service.pipeline_parallel_size > 1:
        words += ["--pipeline-parallel-size", str(service.pipeline_parallel_size)]
    text = shlex.join(words)
    if service.extra_args:
        text += f" {service.extra_args}"
    if service.number_of_instances > 1 and counts_instances:
        text += f" --data-parallel-size {service.number_of_instances}"
    if service.trust_remote_code:
        text += " --trust-remote-code"
    if deployed.pair is not None:
        text += f" --kv-transfer-config {shlex.quote(_transfer(deployed, deployed.pair))}"
    return text


def _transfer(deployed: Deployed, pair: VllmPdService) -> str:
    role = "kv_producer" if deployed.tier == "prefill" else "kv_consumer"
    settings = {
        "kv_connector": pair.kv_connector,
        "kv_role": role,
        "kv_load_failure_policy": pair.kv_load_failure_policy,
    }
    return json.dumps(settings)


def _with_side_channel(deployed: Deployed, command: str) -> str:
    if deployed.pair is None:
        return command
    port = deployed.ports[1]
    exports = f'export VLLM_NIXL_SIDE_CHANNEL_HOST="$(hostname)" VLLM_NIXL_SIDE_CHANNEL_PORT={port}'
    return f"{exports}\n{command}".rstrip("\n")


def _data_parallel(deployed: Deployed) -> str:
    """One server on each node; those after the first have no port of their own."""
    service = deployed.service
    assert isinstance(service, VllmService)
    here = service.number_of_instances // deployed.span.nodes
    flags = (
        f" --data-parallel-size {service.number_of_instances} --data-parallel-size-local {here}"
        f' --data-parallel-address "${head_variable(deployed.name)}"'
        f" --data-parallel-rpc-port {service.data_parallel_rpc_port}"
    )
    first = serve(deployed, counts_instances=False) + flags
    further = _API_SERVERS.sub("", first)
    return (
        'if [ "${SLURM_NODEID:-0}" -eq 0 ]; then\n'
        f"  exec {first}\n"
        "fi\n"
        f"exec {further} --headless --data-parallel-start-rank $((SLURM_NODEID * {here}))"
    )


def _over_ray(deployed: Deployed, command: str, *, before: str = "") -> str:
    """The command on the first node of a Ray cluster over the span, made for it."""
    nodes = deployed.span.nodes
    lead = f"{before}\n" if before else ""
    if nodes == 1:
        return f"{lead}exec {command}"
    gpus = f" --num-gpus={deployed.gpus_per_node}" if deployed.gpus_per_node else ""
    address = f'"${head_variable(deployed.name)}:6379"'
    ip = f'"${head_variable(deployed.name)}"'
    alive = (
        'import ray, sys; ray.init(address="auto", logging_level="ERROR"); '
        f'sys.exit(sum(n["Alive"] for n in ray.nodes()) < {nodes})'
    )
    return f"""{lead}command -v ray >/dev/null || python3 -m pip install --quiet "ray[default]" || exit 1
if ray symmetric-run --help >/dev/null 2>&1; then
  export RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT={_CLUSTER_WAIT_SECONDS}
  exec ray symmetric-run --address {address} --min-nodes {nodes}{gpus} -- {command}
fi
if [ "${{SLURM_NODEID:-0}}" -ne 0 ]; then
  until ray status --address {address} >/dev/null 2>&1; do sleep 2; done
  exec ray start --block --address {address}{gpus}
fi
ray start --head --port 6379 --node-ip-address {ip}{gpus} || exit 1
waited=0
until python3 -c {shlex.quote(alive)}; do
  waited=$((waited + 5))
  if [ "$waited" -ge {_CLUSTER_WAIT_SECONDS} ]; then echo "Ray has fewer than {nodes} nodes." >&2; exit 1; fi
  sleep 5
done
exec {command}"""


def _gateway(service: VllmService, gpus_per_node: int | None) -> str:
    words = ["python3", "GATEWAY", "--model", service.model, "--port", str(service.port)]
    words += ["--tensor-parallel-size", str(service.tensor_parallel_size)]
    words += ["--pipeline-parallel-size", str(service.pipeline_parallel_size)]
    words += ["--number-of-instances", str(service.number_of_instances)]
    if gpus_per_node:
        words += ["--gpus-per-node", str(gpus_per_node)]
    if service.trust_remote_code:
        words += ["--trust-remote-code"]
    if service.served_model_name:
        words += ["--served-model-name", service.served_model_name]
    if service.extra_args:
        words += [f"--extra-args={service.extra_args}"]
    return shlex.join(words).replace("GATEWAY", '"$gym_gateway"', 1)


def _unpack_gateway() -> str:
    script = Path(__file__).with_name("ray_serve_gateway.py").read_bytes()
    text = base64.b64encode(script).decode()
    return f'gym_gateway="$(mktemp -d)/ray_serve_gateway.py"\nprintf %s {text} | base64 -d > "$gym_gateway"'


def router_command(deployed: Deployed, tiers: list[Deployed]) -> str:
    """`vllm-router` before both tiers: an address for each, or with `server_per_node` for each of its nodes."""
    pair = deployed.service
    assert isinstance(pair, VllmPdService)
    words = ["vllm-router", "--vllm-pd-disaggregation", "--host", "0.0.0.0", "--port", str(pair.port)]
    words += ["--prefill-policy", pair.prefill_policy, "--decode-policy", pair.decode_policy]
    words += ["--intra-node-data-parallel-size", str(pair.intra_node_data_parallel_size)]
    words += ["--request-timeout-secs", str(pair.request_timeout_secs), "--log-level", pair.log_level]
    text = shlex.join(words)
    for tier in tiers:
        nodes = tier.span.nodes if pair.server_per_node else 1
        for offset in range(nodes):
            host = node_variable(tier.span.first + offset)
            text += f' --{tier.tier} "http://{host}:{tier.service.port}"'
    return f"exec {text}"


def node_variable(index: int) -> str:
    """The name of a node, for commands that run anywhere in the job."""
    return f"${{GYM_NODE_{index}}}"


def head_variable(name: str) -> str:
    """The variable that holds the address of a service's first node."""
    return f"GYM_HEAD_{identifier(name)}"
