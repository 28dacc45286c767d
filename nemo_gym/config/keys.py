"""Names of config keys, row fields and record fields, each once."""

# --- top level keys of the global config ------------------------------------------------------------------------------
CONFIG_PATHS_KEY_NAME = "config_paths"
ENTRYPOINT_KEY_NAME = "entrypoint"
DEFAULT_HOST_KEY_NAME = "default_host"
HEAD_SERVER_KEY_NAME = "head_server"
DISALLOWED_PORTS_KEY_NAME = "disallowed_ports"
HEAD_SERVER_DEPS_KEY_NAME = "head_server_deps"
PYTHON_VERSION_KEY_NAME = "python_version"
PIP_INSTALL_VERBOSE_KEY_NAME = "pip_install_verbose"
USE_ABSOLUTE_IP_KEY_NAME = "use_absolute_ip"
UV_PIP_SET_PYTHON_KEY_NAME = "uv_pip_set_python"
SKIP_VENV_IF_PRESENT_KEY_NAME = "skip_venv_if_present"
HF_TOKEN_KEY_NAME = "hf_token"
RAY_HEAD_NODE_ADDRESS_KEY_NAME = "ray_head_node_address"
PORT_RANGE_LOW_KEY_NAME = "port_range_low"
PORT_RANGE_HIGH_KEY_NAME = "port_range_high"
DRY_RUN_KEY_NAME = "dry_run"
SERVER_SPINUP_TIMEOUT_SECONDS_KEY_NAME = "server_spinup_timeout_seconds"
MODEL_ENDPOINT_READINESS_TIMEOUT_SECONDS_KEY_NAME = "model_endpoint_readiness_timeout_seconds"
ALLOW_OPENAI_VERSION_SKEW_KEY_NAME = "allow_openai_version_skew"
UV_CACHE_DIR_KEY_NAME = "uv_cache_dir"
UV_LOCK_TIMEOUT_SECONDS_KEY_NAME = "uv_lock_timeout_seconds"
UV_VENV_DIR_KEY_NAME = "uv_venv_dir"
RESULTS_DIR_KEY_NAME = "results_dir"
CACHE_DIR_KEY_NAME = "cache_dir"
INHERIT_FROM_KEY_NAME = "_inherit_from"
COPY_KEY_NAME = "_copy"
DELETE_KEY_KEY_NAME = "_delete_key"
NEMO_GYM_LOG_DIR_KEY_NAME = "nemo_gym_log_dir"
VERBOSE_KEY_NAME = "verbose"
JSON_KEY_NAME = "json"
QUERY_KEY_NAME = "query"
COMPONENT_NAME_KEY_NAME = "component_name"
OBSERVABILITY_ENABLED_KEY_NAME = "observability_enabled"
MODEL_CALL_CAPTURE_DIR_KEY_NAME = "model_call_capture_dir"
TOKEN_ID_CAPTURE_BLOCK = "token_id_capture"
TOKEN_ID_CAPTURE_KEY_NAME = TOKEN_ID_CAPTURE_BLOCK
TELEMETRY_KEY_NAME = "telemetry"
SKIP_VERIFICATION_KEY_NAME = "skip_verification"
SKIP_VERIFICATION_REWARD_KEY_NAME = "skip_verification_reward"
ALLOW_UNSUPPORTED_PAIRING_KEY_NAME = "allow_unsupported_pairing"
ENVIRONMENT_SERVER_NAME_KEY_NAME = "environment_server_name"
ENVIRONMENT_SERVER_ROUTES_KEY_NAME = "environment_server_routes"
ENVIRONMENT_ROUTING_MODE_KEY_NAME = "environment_routing_mode"
PLACEMENT_KEY_NAME = "placement"
PLACEMENT_SHARDS_KEY_NAME = "placement_shards"
PLACED_SHARDS_KEY_NAME = "_placement"
SERVER_RESTARTS_KEY_NAME = "server_restarts"

NEMO_GYM_RESERVED_TOP_LEVEL_KEYS = [
    CONFIG_PATHS_KEY_NAME,
    ENTRYPOINT_KEY_NAME,
    DEFAULT_HOST_KEY_NAME,
    HEAD_SERVER_KEY_NAME,
    DISALLOWED_PORTS_KEY_NAME,
    HEAD_SERVER_DEPS_KEY_NAME,
    PYTHON_VERSION_KEY_NAME,
    PIP_INSTALL_VERBOSE_KEY_NAME,
    USE_ABSOLUTE_IP_KEY_NAME,
    UV_PIP_SET_PYTHON_KEY_NAME,
    SKIP_VENV_IF_PRESENT_KEY_NAME,
    HF_TOKEN_KEY_NAME,
    RAY_HEAD_NODE_ADDRESS_KEY_NAME,
    PORT_RANGE_LOW_KEY_NAME,
    PORT_RANGE_HIGH_KEY_NAME,
    DRY_RUN_KEY_NAME,
    SERVER_SPINUP_TIMEOUT_SECONDS_KEY_NAME,
    MODEL_ENDPOINT_READINESS_TIMEOUT_SECONDS_KEY_NAME,
    ALLOW_OPENAI_VERSION_SKEW_KEY_NAME,
    UV_CACHE_DIR_KEY_NAME,
    UV_LOCK_TIMEOUT_SECONDS_KEY_NAME,
    UV_VENV_DIR_KEY_NAME,
    RESULTS_DIR_KEY_NAME,
    CACHE_DIR_KEY_NAME,
    INHERIT_FROM_KEY_NAME,
    COPY_KEY_NAME,
    NEMO_GYM_LOG_DIR_KEY_NAME,
    VERBOSE_KEY_NAME,
    JSON_KEY_NAME,
    QUERY_KEY_NAME,
    COMPONENT_NAME_KEY_NAME,
    OBSERVABILITY_ENABLED_KEY_NAME,
    MODEL_CALL_CAPTURE_DIR_KEY_NAME,
    TOKEN_ID_CAPTURE_KEY_NAME,
    TELEMETRY_KEY_NAME,
    SKIP_VERIFICATION_KEY_NAME,
    SKIP_VERIFICATION_REWARD_KEY_NAME,
    ALLOW_UNSUPPORTED_PAIRING_KEY_NAME,
    ENVIRONMENT_SERVER_NAME_KEY_NAME,
    ENVIRONMENT_SERVER_ROUTES_KEY_NAME,
    ENVIRONMENT_ROUTING_MODE_KEY_NAME,
    PLACEMENT_KEY_NAME,
    PLACEMENT_SHARDS_KEY_NAME,
    PLACED_SHARDS_KEY_NAME,
    SERVER_RESTARTS_KEY_NAME,
]

DEFAULT_HEAD_SERVER_PORT = 11000
DEFAULT_PORT_RANGE_LOW = 10001
DEFAULT_PORT_RANGE_HIGH = 20000
DEFAULT_HOST = "127.0.0.1"

# --- read at the top level, though not reserved -----------------------------------------------------------------------
POLICY_BASE_URL_KEY_NAME = "policy_base_url"
POLICY_API_KEY_KEY_NAME = "policy_api_key"
POLICY_MODEL_NAME_KEY_NAME = "policy_model_name"
POLICY_MODEL_KEY_NAME = "policy_model"
SERVER_STUCK_TIMEOUT_S_KEY_NAME = "server_stuck_timeout_s"
ERROR_ON_ALMOST_SERVERS_KEY_NAME = "error_on_almost_servers"
ERROR_ON_AGENT_WITHOUT_ENVIRONMENT_SERVER_KEY_NAME = "error_on_agent_without_environment_server"
AGENT_NAME_KEY_NAME = "agent_name"
AGENT_MAP_KEY_NAME = "agent_map"
FAN_OUT_KEY_NAME = "fan_out"

# --- server types and the fields of a block ---------------------------------------------------------------------------
RESOURCES_SERVERS = "resources_servers"
RESPONSES_API_AGENTS = "responses_api_agents"
RESPONSES_API_MODELS = "responses_api_models"
ENVIRONMENT_SERVERS = "environment_servers"
SERVER_TYPES = (RESPONSES_API_MODELS, RESOURCES_SERVERS, RESPONSES_API_AGENTS, ENVIRONMENT_SERVERS)
LEGACY_AGENT = "legacy_agent"
DUMMY_MODEL = "dummy_model"
MISSING = "???"
NO_MODEL_SETTINGS = {
    POLICY_BASE_URL_KEY_NAME: "",
    POLICY_API_KEY_KEY_NAME: "",
    POLICY_MODEL_NAME_KEY_NAME: "",
    POLICY_MODEL_KEY_NAME: {RESPONSES_API_MODELS: {DUMMY_MODEL: {"entrypoint": "app.py"}}},
}
"""Stands in for a policy model where none is needed."""

# --- rows and records -------------------------------------------------------------------------------------------------
TASK_INDEX_KEY_NAME = "_ng_task_index"
ROLLOUT_INDEX_KEY_NAME = "_ng_rollout_index"
ATTEMPT_INDEX_KEY_NAME = "_ng_attempt_index"
ROLLOUT_ID_KEY_NAME = "_ng_rollout_id"
RESPONSES_CREATE_PARAMS_KEY_NAME = "responses_create_params"
RESPONSE_KEY_NAME = "response"
AGENT_REF_KEY_NAME = "agent_ref"
ENVIRONMENT_SERVER_STAMP_KEY_NAME = "_ng_environment_server"
TASK_SOURCE_KEY_NAME = "task_source"
SKILLS_REF_KEY_NAME = "skills_ref"
REWARD_KEY_NAME = "reward"
ROLLOUT_INFOS_KEY_NAME = "rollout_infos"
NUM_ROLLOUTS_KEY_NAME = "num_rollouts"
EXPECTED_NUM_ROLLOUTS_KEY_NAME = "expected_num_rollouts"
MISSING_NUM_ROLLOUTS_KEY_NAME = "missing_num_rollouts"

# --- paths below a model server ---------------------------------------------------------------------------------------
ROLLOUT_PATH_PREFIX = "ng-rollout"
TOKEN_CAPTURE_PATH_SEGMENT = "training-token-capture"
