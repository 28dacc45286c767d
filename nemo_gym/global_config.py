"""The one global config of a process: how it is built, cached and found again."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any, ClassVar

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationResolutionError
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from nemo_gym.config import agent_composition, aliases, checks, compose, directives, handover, interpolations
from nemo_gym.config.environment_servers import (
    environment_server_agent_names,
    environment_server_agent_refs,
    environment_server_attributed_agent,
)
from nemo_gym.config.errors import ConfigError, NoServerInstancesError, ServerRefNotFoundError, raise_problems
from nemo_gym.config.hints import did_you_mean
from nemo_gym.config.includes import load_includes
from nemo_gym.config.instances import ServerInstanceConfig
from nemo_gym.config.keys import (
    AGENT_REF_KEY_NAME,
    ALLOW_OPENAI_VERSION_SKEW_KEY_NAME,
    ALLOW_UNSUPPORTED_PAIRING_KEY_NAME,
    ATTEMPT_INDEX_KEY_NAME,
    CACHE_DIR_KEY_NAME,
    COMPONENT_NAME_KEY_NAME,
    CONFIG_PATHS_KEY_NAME,
    COPY_KEY_NAME,
    DEFAULT_HEAD_SERVER_PORT,
    DEFAULT_HOST_KEY_NAME,
    DISALLOWED_PORTS_KEY_NAME,
    DRY_RUN_KEY_NAME,
    ENTRYPOINT_KEY_NAME,
    ENVIRONMENT_ROUTING_MODE_KEY_NAME,
    ENVIRONMENT_SERVER_NAME_KEY_NAME,
    ENVIRONMENT_SERVER_ROUTES_KEY_NAME,
    ENVIRONMENT_SERVER_STAMP_KEY_NAME,
    EXPECTED_NUM_ROLLOUTS_KEY_NAME,
    HEAD_SERVER_DEPS_KEY_NAME,
    HEAD_SERVER_KEY_NAME,
    HF_TOKEN_KEY_NAME,
    INHERIT_FROM_KEY_NAME,
    JSON_KEY_NAME,
    MISSING_NUM_ROLLOUTS_KEY_NAME,
    MODEL_CALL_CAPTURE_DIR_KEY_NAME,
    MODEL_ENDPOINT_READINESS_TIMEOUT_SECONDS_KEY_NAME,
    NEMO_GYM_LOG_DIR_KEY_NAME,
    NEMO_GYM_RESERVED_TOP_LEVEL_KEYS,
    NO_MODEL_SETTINGS,
    NUM_ROLLOUTS_KEY_NAME,
    OBSERVABILITY_ENABLED_KEY_NAME,
    PIP_INSTALL_VERBOSE_KEY_NAME,
    PLACED_SHARDS_KEY_NAME,
    PLACEMENT_KEY_NAME,
    PLACEMENT_SHARDS_KEY_NAME,
    POLICY_API_KEY_KEY_NAME,
    POLICY_BASE_URL_KEY_NAME,
    POLICY_MODEL_KEY_NAME,
    POLICY_MODEL_NAME_KEY_NAME,
    PORT_RANGE_HIGH_KEY_NAME,
    PORT_RANGE_LOW_KEY_NAME,
    PYTHON_VERSION_KEY_NAME,
    QUERY_KEY_NAME,
    RAY_HEAD_NODE_ADDRESS_KEY_NAME,
    RESPONSE_KEY_NAME,
    RESPONSES_CREATE_PARAMS_KEY_NAME,
    RESULTS_DIR_KEY_NAME,
    REWARD_KEY_NAME,
    ROLLOUT_ID_KEY_NAME,
    ROLLOUT_INDEX_KEY_NAME,
    ROLLOUT_INFOS_KEY_NAME,
    SERVER_RESTARTS_KEY_NAME,
    SERVER_SPINUP_TIMEOUT_SECONDS_KEY_NAME,
    SKILLS_REF_KEY_NAME,
    SKIP_VENV_IF_PRESENT_KEY_NAME,
    SKIP_VERIFICATION_KEY_NAME,
    SKIP_VERIFICATION_REWARD_KEY_NAME,
    TASK_INDEX_KEY_NAME,
    TASK_SOURCE_KEY_NAME,
    TELEMETRY_KEY_NAME,
    TOKEN_ID_CAPTURE_BLOCK,
    TOKEN_ID_CAPTURE_KEY_NAME,
    USE_ABSOLUTE_IP_KEY_NAME,
    UV_CACHE_DIR_KEY_NAME,
    UV_LOCK_TIMEOUT_SECONDS_KEY_NAME,
    UV_PIP_SET_PYTHON_KEY_NAME,
    UV_VENV_DIR_KEY_NAME,
    VERBOSE_KEY_NAME,
)
from nemo_gym.config.layers import Sources, plain
from nemo_gym.config.origins import Origins, dotted
from nemo_gym.config.overrides import Overrides, parse_overrides
from nemo_gym.config.ports import PortRange, assign_addresses, find_free_port
from nemo_gym.config.routing import (
    agents_by_resources_server,
    dataset_agent_pins,
    resolve_dataset_agent,
    taskset_environment_server_name,
)
from nemo_gym.exporters import setup_exporters
from nemo_gym.results.labels import label_runs, rollout_agent_label, rollout_run_key, rollout_run_labels

__all__ = [
    "AGENT_REF_KEY_NAME",
    "ALLOW_OPENAI_VERSION_SKEW_KEY_NAME",
    "ALLOW_UNSUPPORTED_PAIRING_KEY_NAME",
    "ATTEMPT_INDEX_KEY_NAME",
    "CACHE_DIR_KEY_NAME",
    "COMPONENT_NAME_KEY_NAME",
    "CONFIG_PATHS_KEY_NAME",
    "COPY_KEY_NAME",
    "DEFAULT_HEAD_SERVER_PORT",
    "DEFAULT_HOST_KEY_NAME",
    "DISALLOWED_PORTS_KEY_NAME",
    "DRY_RUN_KEY_NAME",
    "ENTRYPOINT_KEY_NAME",
    "ENVIRONMENT_ROUTING_MODE_KEY_NAME",
    "ENVIRONMENT_SERVER_NAME_KEY_NAME",
    "ENVIRONMENT_SERVER_ROUTES_KEY_NAME",
    "ENVIRONMENT_SERVER_STAMP_KEY_NAME",
    "EXPECTED_NUM_ROLLOUTS_KEY_NAME",
    "HEAD_SERVER_DEPS_KEY_NAME",
    "HEAD_SERVER_KEY_NAME",
    "HF_TOKEN_KEY_NAME",
    "INHERIT_FROM_KEY_NAME",
    "JSON_KEY_NAME",
    "MISSING_NUM_ROLLOUTS_KEY_NAME",
    "MODEL_CALL_CAPTURE_DIR_KEY_NAME",
    "MODEL_ENDPOINT_READINESS_TIMEOUT_SECONDS_KEY_NAME",
    "NEMO_GYM_LOG_DIR_KEY_NAME",
    "NEMO_GYM_RESERVED_TOP_LEVEL_KEYS",
    "NUM_ROLLOUTS_KEY_NAME",
    "OBSERVABILITY_ENABLED_KEY_NAME",
    "PIP_INSTALL_VERBOSE_KEY_NAME",
    "PLACED_SHARDS_KEY_NAME",
    "PLACEMENT_KEY_NAME",
    "PLACEMENT_SHARDS_KEY_NAME",
    "POLICY_API_KEY_KEY_NAME",
    "POLICY_BASE_URL_KEY_NAME",
    "POLICY_MODEL_KEY_NAME",
    "POLICY_MODEL_NAME_KEY_NAME",
    "PORT_RANGE_HIGH_KEY_NAME",
    "PORT_RANGE_LOW_KEY_NAME",
    "PYTHON_VERSION_KEY_NAME",
    "QUERY_KEY_NAME",
    "RAY_HEAD_NODE_ADDRESS_KEY_NAME",
    "RESPONSES_CREATE_PARAMS_KEY_NAME",
    "RESPONSE_KEY_NAME",
    "RESULTS_DIR_KEY_NAME",
    "REWARD_KEY_NAME",
    "ROLLOUT_ID_KEY_NAME",
    "ROLLOUT_INDEX_KEY_NAME",
    "ROLLOUT_INFOS_KEY_NAME",
    "SERVER_RESTARTS_KEY_NAME",
    "SERVER_SPINUP_TIMEOUT_SECONDS_KEY_NAME",
    "SKILLS_REF_KEY_NAME",
    "SKIP_VENV_IF_PRESENT_KEY_NAME",
    "SKIP_VERIFICATION_KEY_NAME",
    "SKIP_VERIFICATION_REWARD_KEY_NAME",
    "TASK_INDEX_KEY_NAME",
    "TASK_SOURCE_KEY_NAME",
    "TELEMETRY_KEY_NAME",
    "TOKEN_ID_CAPTURE_BLOCK",
    "TOKEN_ID_CAPTURE_KEY_NAME",
    "USE_ABSOLUTE_IP_KEY_NAME",
    "UV_CACHE_DIR_KEY_NAME",
    "UV_LOCK_TIMEOUT_SECONDS_KEY_NAME",
    "UV_PIP_SET_PYTHON_KEY_NAME",
    "UV_VENV_DIR_KEY_NAME",
    "VERBOSE_KEY_NAME",
    "DictConfig",
    "GlobalConfigDictParser",
    "GlobalConfigDictParserConfig",
    "OmegaConf",
    "agents_by_resources_server",
    "dataset_agent_pins",
    "environment_server_agent_names",
    "environment_server_agent_refs",
    "environment_server_attributed_agent",
    "find_open_port",
    "get_first_server_config_dict",
    "get_global_config_dict",
    "get_hf_token",
    "label_runs",
    "maybe_get_global_config_dict",
    "resolve_dataset_agent",
    "rollout_agent_label",
    "rollout_run_key",
    "rollout_run_labels",
    "set_global_config_dict",
    "taskset_environment_server_name",
]

_GLOBAL_CONFIG_DICT: DictConfig | None = None


class GlobalConfigDictParserConfig(BaseModel):
    """What the global config is built from, beside the files it names.

    `dotenv_path` replaces the search for env.yaml and need not exist. `offline` asks and changes nothing outside the
    config. `hide_secrets` masks secrets in the result. `fallback_config_paths` are config files beneath all others,
    which nobody named. `skip_exporters` leaves the experiment trackers closed that the config names.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    NO_MODEL_GLOBAL_CONFIG_DICT: ClassVar[DictConfig] = DictConfig(NO_MODEL_SETTINGS)

    dotenv_path: Path | None = None
    initial_global_config_dict: DictConfig | None = None
    skip_load_from_cli: bool = False
    skip_load_from_dotenv: bool = False
    hide_secrets: bool = False
    offline: bool = False
    fallback_config_paths: list[str] = Field(default_factory=list)
    skip_exporters: bool = False


class GlobalConfigDictParser(BaseModel):
    """Builds the global config. Methods that take a config change it in place."""

    _overrides: Overrides | None = PrivateAttr(default=None)
    _origins: Origins | None = PrivateAttr(default=None)

    @property
    def origins(self) -> Origins:
        """Who set each value of the config parsed last."""
        return self._origins or Origins()

    def parse(self, parse_config: GlobalConfigDictParserConfig | None = None) -> DictConfig:
        """Compose the global config, and open the experiment trackers that it names.

        Raises ConfigError with everything found wrong.
        """
        wanted = parse_config or GlobalConfigDictParserConfig()
        sources = Sources(
            initial=wanted.initial_global_config_dict,
            overrides=Overrides() if wanted.skip_load_from_cli else self._command_line(),
            dotenv_path=wanted.dotenv_path,
            reads_env_file=not wanted.skip_load_from_dotenv,
            fallback_config_paths=tuple(wanted.fallback_config_paths),
        )
        composed = compose.compose(sources, offline=wanted.offline, hide_secrets=wanted.hide_secrets)
        self._origins = composed.origins
        if not (wanted.offline or wanted.skip_exporters):
            setup_exporters(composed.config)
        return composed.config

    def parse_no_environment(self, initial_global_config_dict: DictConfig | None = None) -> DictConfig:
        """Compose from the given dict and the files it names only."""
        return self.parse(
            GlobalConfigDictParserConfig(
                initial_global_config_dict=initial_global_config_dict,
                skip_load_from_cli=True,
                skip_load_from_dotenv=True,
            )
        )

    def parse_global_config_dict_from_cli(self) -> DictConfig:
        """What the overrides on the command line set."""
        self._overrides = parse_overrides(sys.argv[1:])
        raise_problems(self._overrides.problems)
        return self._overrides.config

    def load_extra_config_paths(self, config_paths: list[str]) -> tuple[list[str], list[DictConfig]]:
        """All files reached from these, by name, and their configs from the weakest to the strongest."""
        includes = load_includes(config_paths)
        raise_problems(includes.problems)
        return includes.paths, [layer.config for layer in includes.layers]

    def filter_for_server_instance_configs(self, global_config_dict: DictConfig) -> list[ServerInstanceConfig]:
        """The servers of a config, in its order."""
        return list(compose.valid_instances(global_config_dict))

    def raise_on_no_server_instances(self, global_config_dict: DictConfig) -> None:
        """Refuse a config without a server."""
        if not self.filter_for_server_instance_configs(global_config_dict):
            paths = ", ".join(global_config_dict.get(CONFIG_PATHS_KEY_NAME) or []) or "no config file"
            raise NoServerInstancesError(
                f"The config defines no server ({paths} loaded): name one with --resources-server, --environment, "
                f"--benchmark or --config."
            )

    def validate_and_populate_defaults(
        self,
        server_instance_configs: list[ServerInstanceConfig],
        default_host: str,
        port_range_low: int,
        port_range_high: int,
        initial_disallowed_ports: list[int] | None = None,
        skip_verification: bool | None = None,
        skip_verification_reward: float | None = None,
        probe_ports: bool = True,
    ) -> list[int]:
        """Give servers hosts and ports where they have none; gives all ports that are taken now."""
        blocks = {server.name: server.get_inner_run_server_config_dict() for server in server_instance_configs}
        inherited = {
            SKIP_VERIFICATION_KEY_NAME: skip_verification,
            SKIP_VERIFICATION_REWARD_KEY_NAME: skip_verification_reward,
        }
        for server in server_instance_configs:
            for key, value in inherited.items():
                if value is not None and server.SERVER_TYPE == "responses_api_agents":
                    blocks[server.name].setdefault(key, value)
        ports = PortRange(port_range_low, port_range_high)
        return assign_addresses(blocks, default_host, ports, initial_disallowed_ports or [], probe=probe_ports)

    def collect_missing_value_paths(self, config: DictConfig) -> list[str]:
        """Where `???` still stands, like `a.b[0].c`."""
        return [dotted(path) for path in checks.missing_value_paths(plain(config))]

    def raise_on_missing_values(self, global_config_dict: DictConfig) -> None:
        """Refuse a config in which `???` still stands."""
        raise_problems(checks.missing_values(plain(global_config_dict), self.origins))

    def raise_on_unsupported_model_pairings(self, global_config_dict: DictConfig) -> None:
        """Refuse a model server of a kind that an agent's resources server doesn't allow."""
        raise_problems(checks.model_pairings(interpolations.tolerantly_resolved(global_config_dict)))

    def detect_and_report_almost_servers(self, global_config_dict: DictConfig) -> None:
        """Refuse, or warn about, entries that are meant to be servers and fail their checks."""
        raise_problems(checks.almost_servers(global_config_dict, self.origins))

    def compose_unbound_agent(
        self, global_config_dict: DictConfig, held_agent_overrides: DictConfig | None = None
    ) -> None:
        """Let an agent that names no resources server take over the agents that do."""
        entries = plain(global_config_dict)
        held = plain(held_agent_overrides) if held_agent_overrides is not None else None
        agent_composition.compose_unbound_agent(entries, held)
        _replace_contents(global_config_dict, entries)

    @staticmethod
    def apply_legacy_agent_aliases(global_config_dict: DictConfig) -> None:
        """Route an agent's old name to today's."""
        entries = plain(global_config_dict)
        aliases.apply_legacy_agent_aliases(entries)
        _replace_contents(global_config_dict, entries)

    def _recursively_swap_keys(self, dict_config: DictConfig) -> DictConfig:
        """Carry out `_inherit_from`, `_copy` and `_delete_key` everywhere, in place."""
        directives.register_directive_resolvers()
        _replace_contents(dict_config, directives.carry_out_directives(plain(dict_config)))
        return dict_config

    def _command_line(self) -> Overrides:
        """What the command line sets, with what was wrong in it."""
        self._overrides = None
        try:
            config = self.parse_global_config_dict_from_cli()
        except ConfigError:
            overrides = self._read_overrides()
            if not overrides.problems:
                raise
            return overrides
        return self._read_overrides(config)

    def _read_overrides(self, config: DictConfig | None = None) -> Overrides:
        return self._overrides or Overrides(config=config if config is not None else OmegaConf.create({}))


def get_global_config_dict(
    global_config_dict_parser_config: GlobalConfigDictParserConfig | None = None,
    global_config_dict_parser_cls: type[GlobalConfigDictParser] = GlobalConfigDictParser,
) -> DictConfig:
    """This process's config: the cached one, else what a parent process handed over, else parsed now.

    Once there is one, the arguments mean nothing.
    """
    config = maybe_get_global_config_dict()
    if config is not None:
        return config
    return set_global_config_dict(global_config_dict_parser_config, global_config_dict_parser_cls)


def maybe_get_global_config_dict() -> DictConfig | None:
    """The cached config or the one a parent process handed over; None without either. Never parses."""
    global _GLOBAL_CONFIG_DICT
    if _GLOBAL_CONFIG_DICT is None:
        handed_over = handover.read_config()
        if handed_over is None:
            return None
        directives.register_directive_resolvers()
        _GLOBAL_CONFIG_DICT = OmegaConf.create(handed_over)
        _heed_verbosity(_GLOBAL_CONFIG_DICT)
    return _GLOBAL_CONFIG_DICT


def set_global_config_dict(
    global_config_dict_parser_config: GlobalConfigDictParserConfig | None = None,
    global_config_dict_parser_cls: type[GlobalConfigDictParser] = GlobalConfigDictParser,
) -> DictConfig:
    """Parse the config and cache it, whatever was cached before.

    Raises ConfigError.
    """
    global _GLOBAL_CONFIG_DICT
    try:
        config = global_config_dict_parser_cls().parse(global_config_dict_parser_config)
        _heed_verbosity(config)
    except InterpolationResolutionError as error:
        raise interpolations.interpolation_error(error) from error
    _GLOBAL_CONFIG_DICT = config
    return config


def get_first_server_config_dict(global_config_dict: DictConfig, top_level_path: str) -> DictConfig:
    """The implementation block of an instance: its first server type's first implementation.

    Raises ServerRefNotFoundError when there is no such instance.
    """
    block: Any = global_config_dict.get(top_level_path)
    for _ in range(2):
        block = block[next(iter(block))] if isinstance(block, DictConfig) and len(block) else None
    if not isinstance(block, DictConfig):
        hint = did_you_mean(top_level_path, map(str, global_config_dict))
        raise ServerRefNotFoundError(f"The config defines no server `{top_level_path}`.{hint}")
    return block


def get_hf_token() -> str | None:
    """The configured Hugging Face token."""
    token = get_global_config_dict().get(HF_TOKEN_KEY_NAME)
    return str(token) if token else None


def find_open_port(disallowed_ports: list[int] | None = None, max_retries: int = 50) -> int:
    """A free port of the configured range.

    Raises RuntimeError when there is none.
    """
    config = _GLOBAL_CONFIG_DICT if _GLOBAL_CONFIG_DICT is not None else OmegaConf.create({})
    defaults = PortRange()
    ports = PortRange(
        int(config.get(PORT_RANGE_LOW_KEY_NAME) or defaults.low),
        int(config.get(PORT_RANGE_HIGH_KEY_NAME) or defaults.high),
    )
    return find_free_port(ports, disallowed_ports or [], max_retries)


def _heed_verbosity(config: DictConfig) -> None:
    if config.get(VERBOSE_KEY_NAME) is True:
        logging.basicConfig()
        logging.getLogger().setLevel(logging.DEBUG)


def _replace_contents(config: DictConfig, entries: dict[str, Any]) -> None:
    for key in list(config):
        del config[key]
    for key, value in entries.items():
        config[key] = value
