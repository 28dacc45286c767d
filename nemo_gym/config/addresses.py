"""Where the head server and every other server listen."""

from __future__ import annotations

import socket
from typing import Any

from omegaconf import DictConfig

from nemo_gym.config import keys
from nemo_gym.config.environment_servers import environment_server_attributed_agent
from nemo_gym.config.errors import ConfigError
from nemo_gym.config.instances import ServerInstanceConfig
from nemo_gym.config.ports import PortRange, assign_addresses, chosen_ports, explicit_port_problems


def fill_in_addresses(
    config: DictConfig, instances: list[ServerInstanceConfig], *, offline: bool = False
) -> list[ConfigError]:
    """Give the head server and every instance host and port where they have none, in place.

    A relay gets the address of its agent. Tells of ports that can't be, or can't be together.
    """
    config[keys.USE_ABSOLUTE_IP_KEY_NAME] = config.get(keys.USE_ABSOLUTE_IP_KEY_NAME) or False
    ports = _port_range(config)
    host = default_host(config, offline=offline)
    head = _head_server(config, host)
    blocks = {instance.name: instance.get_inner_run_server_config_dict() for instance in instances}
    relays = [instance.name for instance in instances if _is_relay(instance)]
    served = {name: block for name, block in blocks.items() if name not in relays}
    if problems := _explicit_problems(head, served, host):
        return problems
    given_out = [_port(head["port"]), *map(int, config.get(keys.DISALLOWED_PORTS_KEY_NAME) or ())]
    taken = assign_addresses(served, host, ports, dict.fromkeys(given_out), probe=not offline)
    config[keys.DISALLOWED_PORTS_KEY_NAME] = taken
    return [problem for name in relays for problem in _share_address(name, blocks)]


def default_host(config: DictConfig, *, offline: bool = False) -> str:
    """The host of servers that name none."""
    if config.get(keys.USE_ABSOLUTE_IP_KEY_NAME) and not offline:
        return socket.gethostbyname(socket.gethostname())
    return str(config.get(keys.DEFAULT_HOST_KEY_NAME) or keys.DEFAULT_HOST)


def _port_range(config: DictConfig) -> PortRange:
    low = config.get(keys.PORT_RANGE_LOW_KEY_NAME)
    high = config.get(keys.PORT_RANGE_HIGH_KEY_NAME)
    low = config[keys.PORT_RANGE_LOW_KEY_NAME] = keys.DEFAULT_PORT_RANGE_LOW if low is None else _port(low)
    high = config[keys.PORT_RANGE_HIGH_KEY_NAME] = keys.DEFAULT_PORT_RANGE_HIGH if high is None else _port(high)
    if not (isinstance(low, int) and isinstance(high, int) and 0 < low <= high < 65536):
        raise ConfigError(f"port_range_low and port_range_high must be ports in order, not {low!r} and {high!r}.")
    return PortRange(low, high)


def _head_server(config: DictConfig, host: str) -> DictConfig:
    head = config.get(keys.HEAD_SERVER_KEY_NAME)
    if head is None:
        config[keys.HEAD_SERVER_KEY_NAME] = {}
        head = config[keys.HEAD_SERVER_KEY_NAME]
    if not isinstance(head, DictConfig):
        raise ConfigError(f"{keys.HEAD_SERVER_KEY_NAME} must hold host and port, not {head!r}.")
    head["host"] = head.get("host") or host
    if not (port := _port(head.get("port"))):
        port = keys.DEFAULT_HEAD_SERVER_PORT
        chosen_ports.add(port)
    head["port"] = port
    return head


def _explicit_problems(head: DictConfig, served: dict[str, DictConfig], host: str) -> list[ConfigError]:
    addresses = [(name, block.get("host") or host, _port(block.get("port"))) for name, block in served.items()]
    explicit = [address for address in addresses if address[2]]
    return explicit_port_problems([(keys.HEAD_SERVER_KEY_NAME, head["host"], head["port"]), *explicit])


def _port(value: Any) -> Any:
    """A port from the environment comes as text."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value


def _is_relay(instance: ServerInstanceConfig) -> bool:
    servers = instance.server_type_config_dict.get(keys.ENVIRONMENT_SERVERS) or {}
    return instance.SERVER_TYPE == keys.ENVIRONMENT_SERVERS and keys.LEGACY_AGENT in servers


def _share_address(name: str, blocks: dict[str, DictConfig]) -> list[ConfigError]:
    """A relay is another name of its agent, so that name and address go together for everybody alike."""
    agent = environment_server_attributed_agent(blocks[name])
    if agent is None:
        reference = f"{{type: {keys.RESPONSES_API_AGENTS}, name: <agent>}}"
        return [ConfigError(f"`{name}` relays to no agent: give it `agent_server: {reference}`.")]
    if agent in blocks:
        blocks[name]["host"], blocks[name]["port"] = blocks[agent]["host"], blocks[agent]["port"]
    return []
