from __future__ import annotations

import pytest

from nemo_gym.telemetry import configure_telemetry_env
from nemo_gym.telemetry.settings import SPAN_GROUPS, TelemetrySettings, parse_span_groups


def test_the_block_becomes_the_environment_of_servers() -> None:
    environment: dict[str, str] = {}
    block = {
        "enabled": True,
        "service_name": "mine",
        "span_groups": "default,verify",
        "exporter": "console",
        "otlp_endpoint": "http://collector:4318",
        "otlp_headers": {"a": "b", "c": "d"},
        "memory_profiling": {"enabled": True, "interval_seconds": 2.5},
        "run_id": "run",
        "somebody_elses": 1,
    }
    assert configure_telemetry_env(block, environment) == "run"
    assert environment == {
        "NEMO_GYM_OTEL_ENABLED": "true",
        "NEMO_GYM_OTEL_SPAN_GROUPS": "default,verify",
        "NEMO_GYM_OTEL_TRACES_ENABLED": "true",
        "NEMO_GYM_OTEL_METRICS_ENABLED": "true",
        "NEMO_GYM_OTEL_LOGS_ENABLED": "false",
        "NEMO_GYM_OTEL_EXPORTER": "console",
        "NEMO_GYM_OTEL_RUN_ID": "run",
        "NEMO_GYM_OTEL_SERVICE_NAME_PER_SERVER": "true",
        "NEMO_GYM_OTEL_INSTRUMENT_AIOHTTP": "true",
        "NEMO_GYM_OTEL_MEMORY_PROFILING_ENABLED": "true",
        "NEMO_GYM_OTEL_MEMORY_PROFILING_INTERVAL_SECONDS": "2.5",
        "OTEL_SERVICE_NAME": "mine",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318",
        "OTEL_EXPORTER_OTLP_HEADERS": "a=b,c=d",
    }
    settings = TelemetrySettings.from_environment(environment)
    assert settings.enabled and settings.service_name == "mine" and settings.exporter == "console"
    assert settings.span_groups == {"job", "server", "http_client", "rollout", "verify"}
    assert (settings.memory_profiling_enabled, settings.memory_profiling_interval_seconds) == (True, 2.5)


def test_what_the_user_set_stays() -> None:
    environment = {"NEMO_GYM_OTEL_EXPORTER": "otlp", "OTEL_SERVICE_NAME": "theirs", "SLURM_JOB_ID": "77"}
    assert configure_telemetry_env({"enabled": True, "exporter": "console"}, environment) == "77"
    assert environment["NEMO_GYM_OTEL_EXPORTER"] == "otlp" and environment["OTEL_SERVICE_NAME"] == "theirs"
    assert environment["NEMO_GYM_OTEL_RUN_ID"] == "77"


def test_a_run_without_a_name_gets_one() -> None:
    first, second = (configure_telemetry_env({"enabled": True}, {}) for _ in range(2))
    assert first is not None and len(first) == 12 and int(first, 16) >= 0 and first != second


@pytest.mark.parametrize("block", [None, {}, {"enabled": False, "exporter": "console"}])
def test_off_sets_nothing(block: dict[str, object] | None) -> None:
    environment: dict[str, str] = {}
    assert configure_telemetry_env(block, environment) is None and environment == {}
    assert not TelemetrySettings.from_environment(environment).enabled


def test_names_of_the_tracing_package_of_0_7_count_where_ours_are_unset() -> None:
    settings = TelemetrySettings.from_environment(
        {"NEMO_LENS_ENABLED": "on", "NEMO_LENS_EXPORTER": "console", "NEMO_GYM_OTEL_EXPORTER": "otlp"}
    )
    assert settings.enabled and settings.exporter == "otlp"


def test_groups_and_presets_mix() -> None:
    assert parse_span_groups("default") == {"job", "server", "http_client", "rollout"}
    assert parse_span_groups("per_rollout") == {"verify", "agent", "model_call", "server", "http_client", "rollout"}
    assert parse_span_groups("all") == SPAN_GROUPS == parse_span_groups("default,per_rollout, sandbox,")
    with pytest.raises(ValueError, match="'verfy' is no span group"):
        parse_span_groups("verfy")
