"""OpenTelemetry: a collector beside the services, what it gathers, and how Gym is told about it."""

import shlex
from collections.abc import Mapping
from typing import Any

import yaml

from nemo_gym.orchestration.api import SubmitConfig, VllmService
from nemo_gym.orchestration.deployment import Deployment, policy_of
from nemo_gym.orchestration.layout import Span
from nemo_gym.orchestration.steps import Health, Step, StepEnv
from nemo_gym.orchestration.vllm_commands import node_variable

HTTP_PORT, GRPC_PORT, HEALTH_PORT = 4318, 4317, 13133
TOKEN_VARIABLE = "GYM_OTEL_TOKEN"


def telemetry_env(config: SubmitConfig, run_id: str) -> dict[str, str]:
    """Variables that make the driver's Gym send its spans, metrics and logs to the collector."""
    otel = config.otel
    if not (otel.is_on and otel.gym_telemetry):
        return {}
    return {
        "NEMO_GYM_OTEL_ENABLED": "true",
        "NEMO_GYM_OTEL_RUN_ID": run_id,
        "NEMO_GYM_OTEL_SPAN_GROUPS": otel.gym_span_groups,
        "NEMO_GYM_OTEL_LOGS_ENABLED": str(otel.gym_logs).lower(),
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://localhost:{HTTP_PORT}",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
    }


def collector_step(config: SubmitConfig, folder: str, deployment: Deployment, environment: Mapping[str, str]) -> Step:
    """The collector, on the driver's node, so that the driver finds it at localhost."""
    otel = config.otel
    env = StepEnv(private={TOKEN_VARIABLE: environment[otel.token_env]})
    node = deployment.driver_node
    return Step(
        "otel",
        f"exec {shlex.join([otel.binary, '--config', f'{folder}/otel/collector.yaml'])}",
        Span(node, 1),
        env,
        otel.container,
        (f"{folder}:{folder}",) if otel.container else (),
        Health((node,), HEALTH_PORT, "/", otel.health_check_timeout_seconds),
    )


def collector_config(config: SubmitConfig, deployment: Deployment, facts: Mapping[str, str]) -> str:
    """The collector's config: what it scrapes and receives, how it names that, where it goes. No secret is in it."""
    otel = config.otel
    policy = policy_of(config)
    attributes = {
        "service.name": otel.service_name,
        "component": otel.component,
        **facts,
        "slurm_job_id": "${env:SLURM_JOB_ID}",
        **({"model": policy.model_name} if policy else {}),
    }
    both = {"receivers": ["otlp"], "processors": ["resource", "batch"], "exporters": ["otlphttp", "file"]}
    metrics = {**both, "receivers": ["otlp", "prometheus"], "processors": ["resource", "metricstransform", "batch"]}
    content: dict[str, Any] = {
        "extensions": {"health_check": {"endpoint": f"0.0.0.0:{HEALTH_PORT}"}},
        "receivers": {
            "otlp": {
                "protocols": {
                    "grpc": {"endpoint": f"0.0.0.0:{GRPC_PORT}"},
                    "http": {"endpoint": f"0.0.0.0:{HTTP_PORT}"},
                }
            },
            "prometheus": {"config": {"scrape_configs": _scrapes(config, deployment)}},
        },
        "processors": {
            "batch": {},
            "resource": {
                "attributes": [{"key": key, "value": value, "action": "upsert"} for key, value in attributes.items()]
            },
            "metricstransform": {
                "transforms": [
                    {
                        "include": "^(.*):(.*)$$",
                        "match_type": "regexp",
                        "action": "update",
                        "new_name": "$${1}_$${2}",
                    }
                ]
            },
        },
        "exporters": {
            "otlphttp": {
                "endpoint": otel.endpoint,
                "headers": {"Authorization": f"Bearer ${{env:{TOKEN_VARIABLE}}}"},
            },
            "file": {"path": "${env:GYM_JOB_DIR}/otel/telemetry.jsonl"},
        },
        "service": {
            "extensions": ["health_check"],
            "pipelines": {"traces": both, "logs": both, "metrics": metrics},
        },
    }
    return yaml.safe_dump(content, sort_keys=False)


def _scrapes(config: SubmitConfig, deployment: Deployment) -> list[dict[str, Any]]:
    models = [
        (deployed.name, f"{_host(deployed.span.first)}:{deployed.service.port}")
        for deployed in deployment.services
        if isinstance(deployed.service, VllmService)
    ]
    nodes = range(deployment.layout.total)
    jobs = [(name, [target]) for name, target in models]
    jobs += [("gpu", [f"{_host(node)}:{config.otel.gpu_metrics_port}" for node in nodes])]
    jobs += [("node", [f"{_host(node)}:{config.otel.node_metrics_port}" for node in nodes])]
    every = f"{config.otel.scrape_interval_seconds}s"
    return [
        {"job_name": name, "scrape_interval": every, "static_configs": [{"targets": targets}]} for name, targets in jobs
    ]


def _host(node: int) -> str:
    return node_variable(node).replace("${", "${env:")
