"""Top-level keys that are probably slips of the pen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nemo_gym.config.hints import closest
from nemo_gym.config.interpolations import mentioned_keys
from nemo_gym.config.keys import (
    CONFIG_PATHS_KEY_NAME,
    ENTRYPOINT_KEY_NAME,
    NEMO_GYM_RESERVED_TOP_LEVEL_KEYS,
    SERVER_TYPES,
)
from nemo_gym.config.origins import Origins, dotted

# Settings of Gym or of one of its commands, though a config may use their names otherwise.
_NOT_RESERVED = """
policy_base_url policy_api_key policy_model_name policy_model error_on_almost_servers strict
error_on_agent_without_environment_server agent_name agent_map fan_out model_endpoint_readiness_timeout_seconds
uvicorn_timeout_worker_healthcheck uvicorn_logging_show_200_ok uvicorn_proxy_headers uvicorn_forwarded_allow_ips
global_aiohttp_connector_limit global_aiohttp_connector_limit_per_host global_aiohttp_intended_concurrency
global_aiohttp_intended_concurrency_per_host global_aiohttp_client_request_debug
global_aiohttp_tcp_keepalive_idle_seconds global_aiohttp_tcp_keepalive_interval_seconds
global_aiohttp_tcp_keepalive_probes profiling_enabled profiling_results_dirpath
wandb_project wandb_name wandb_api_key mlflow_tracking_uri mlflow_tracking_token mlflow_experiment_name
mlflow_run_name upload_rollouts upload_rollouts_to_wandb
input_jsonl_fpath output_jsonl_fpath require_complete num_samples_in_parallel max_resident_rollout_tasks
retain_results_in_memory responses_create_params disable_aggregation disable_health_check health_check_workers
health_check_ignored_checks count_failure_classes_as_zero count_missing_rollouts_as_zero
route_failures_to_sidecar rollout_collection_driver limit num_repeats num_repeats_add_seed interleave_repeats
resume_from_cache prompt_config skills dispatch_budget_s drain_margin_s dispatch_longest_first
rollout_timeout_s seed_timeout_s model_call_timeout_s tool_call_timeout_s verify_timeout_s aggregate_timeout_s
server_stuck_timeout_s
retry_terminal_timeouts retry_invalid_judge_responses split reuse_existing_data_preparation overwrite
input_glob merge_shards materialized_inputs_jsonl_fpath rollouts_jsonl_fpath allow_partial_rollouts
output_dirpath mode should_download data_source overwrite_metrics_conflicts task_data_validation
hf_organization hf_collection_name hf_collection_slug hf_dataset_prefix resource_config_path dataset_name version
artifact_fpath output_fpath repo_id create_pr revision commit_message commit_description delete_from_gitlab
help h
"""
KNOWN_TOP_LEVEL_KEYS = frozenset([*NEMO_GYM_RESERVED_TOP_LEVEL_KEYS, *_NOT_RESERVED.split()])


def misspelled_settings(config: Mapping[str, Any], origins: Origins) -> dict[str, str]:
    """Keys that nothing uses and that are nearly a setting's name, each with a sentence about it."""
    messages = {}
    for key in _unused(config, config):
        suggestion = closest(key, KNOWN_TOP_LEVEL_KEYS, cutoff=0.87)
        if suggestion is not None:
            origin = origins.of((key,))
            by = f" ({origin})" if origin else ""
            messages[key] = f"`{key}`{by} is no setting of Gym. Did you mean `{suggestion}`?"
    return messages


def misspelled_servers(config: Mapping[str, Any], origins: Origins) -> dict[str, str]:
    """Entries that would be servers but for one key that is nearly right, each with a sentence about it."""
    messages = {}
    for name, entry in config.items():
        for path, meant in _slips(entry) if isinstance(entry, Mapping) else ():
            key, origin = dotted((name, *path)), origins.of((name, *path))
            by = f" ({origin})" if origin else ""
            messages[key] = f"`{key}`{by} makes no server. Did you mean `{meant}`?"
    return messages


def _slips(entry: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """The path in an entry and the key meant there."""
    for server_type, implementations in entry.items():
        blocks = implementations if isinstance(implementations, Mapping) else {}
        is_type = server_type in SERVER_TYPES
        for kind, block in blocks.items():
            if not isinstance(block, Mapping) or (is_type and ENTRYPOINT_KEY_NAME in block):
                continue
            if is_type:
                yield from (
                    ((server_type, kind, str(key)), ENTRYPOINT_KEY_NAME)
                    for key in block
                    if closest(str(key), [ENTRYPOINT_KEY_NAME], cutoff=0.8)
                )
            elif ENTRYPOINT_KEY_NAME in block and (meant := closest(str(server_type), SERVER_TYPES, cutoff=0.8)):
                yield (server_type,), meant


def unused_in_env_file(
    env_file: Mapping[str, Any], config: Mapping[str, Any], elsewhere: Iterable[Mapping[str, Any]], label: str
) -> dict[str, str]:
    """Keys of env.yaml that no loaded config defines, refers to or is known to read, each with a sentence about it.

    `elsewhere` are the layers beside env.yaml.
    """
    layers = list(elsewhere)
    known = {key for layer in layers for key in layer}
    # The paths are read before the config is composed, and their `${…}` is gone from it.
    paths = [layer.get(CONFIG_PATHS_KEY_NAME) for layer in (env_file, *layers)]
    known |= set(mentioned_keys(paths))
    wanted = set(mentioned_keys(config)) | KNOWN_TOP_LEVEL_KEYS
    messages = {}
    for key in _unused(env_file, config):
        if key in known:
            continue
        suggestion = closest(key, wanted, cutoff=0.5)
        hint = f" Did you mean `{suggestion}`?" if suggestion else ""
        messages[key] = f"`{key}` in {label} isn't used by any loaded config.{hint}"
    return messages


def _unused(keys: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
    used = KNOWN_TOP_LEVEL_KEYS | set(mentioned_keys(config))
    return [key for key, value in keys.items() if isinstance(key, str) and key not in used and not _is_entry(value)]


def _is_entry(value: object) -> bool:
    return isinstance(value, Mapping) and any(server_type in value for server_type in SERVER_TYPES)
