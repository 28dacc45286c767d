"""`gym env stop` and `gym env logs`, and where a head server is: all of it without composing the config."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nemo_gym.cli.overrides import override_key
from nemo_gym.errors import UsageError

HOST_KEY, PORT_KEY = "head_server.host", "head_server.port"
_LIGHT_KEYS = frozenset({HOST_KEY, PORT_KEY, "json", "verbose"})
_ANY_HOST = frozenset({"0.0.0.0", "::", ""})


@dataclass(frozen=True)
class HeadAddress:
    """Where a head server listens."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """The address to call: a server bound to every address is reached at the loopback one."""
        return f"http://{'127.0.0.1' if self.host in _ANY_HOST else self.host}:{self.port}"


def stop(overrides: Sequence[str], *, everything: bool = False) -> None:
    """Stop one run, or every run of this user. Ends with 1 when there is none that is meant."""
    from nemo_gym.launch.run_directory import running, the_run
    from nemo_gym.launch.stop import collectors_of, stop_run

    port = chosen_port(overrides)
    if everything and port is not None:
        raise UsageError("--all and --port exclude each other.")
    runs = running() if everything else []
    for info in runs or [the_run(port, command="gym env stop")]:
        print(f"Stopping the run at {info.title} …")
        cut_off = [pid for pid in collectors_of(info) if pid != info.pid]
        by_itself = stop_run(info)
        print(f"Stopped the run at port {info.head_port}." + ("" if by_itself else " It had to be killed."))
        if cut_off:
            print(_cut_off(cut_off))


def _cut_off(pids: Sequence[int]) -> str:
    who = f"pid {', '.join(map(str, pids))}"
    return f"Rollouts were being collected with it ({who}): start the servers again before that is resumed."


def logs(name: str | None, overrides: Sequence[str], *, follow: bool = False) -> None:
    """Print a server's log; with `follow`, until the run ends."""
    from nemo_gym.launch.logs import follow as lines_of
    from nemo_gym.launch.run_directory import the_run

    info = the_run(chosen_port(overrides), command=f"gym env logs {name or 'NAME'}")
    if not name:
        raise UsageError(f"missing NAME: this run has the logs of {', '.join(info.logs)}.")
    try:
        for line in lines_of(info, name, follow):
            print(line)
    except KeyboardInterrupt:
        raise SystemExit(0) from None


def point_at_other_runs(asked: HeadAddress) -> None:
    """Where nothing answered: say on stderr how to start servers, or at which other port some run."""
    from nemo_gym.launch.run_directory import running

    others = [info for info in running() if info.head_port != asked.port]
    if others:
        print("Runs are alive elsewhere:", file=sys.stderr)
        for info in others:
            print(f"- {info.title}\n  `gym env status +{PORT_KEY}={info.head_port}`", file=sys.stderr)
    else:
        print("Start servers with `gym env start`.", file=sys.stderr)


def chosen_port(overrides: Sequence[str]) -> int | None:
    """The port of the run that a command means; None where it isn't said. Raises UsageError for any other override."""
    values = _light_values(overrides)
    if values is None:
        raise UsageError(f"takes no override but +{PORT_KEY}=: it reads no config.")
    port = values.get(PORT_KEY)
    return None if port is None else _port_number(port)


def _light_values(overrides: Sequence[str]) -> dict[str, str] | None:
    """The overrides by key, when they are only about the head server's address; None when a config has to be read."""
    values = {override_key(token): token.partition("=")[2] for token in overrides}
    if not values.keys() <= _LIGHT_KEYS or any("${" in value for value in values.values()):
        return None
    return {key: value for key, value in values.items() if key is not None}


def head_address(overrides: Sequence[str] | None = None) -> HeadAddress:
    """The head server's address: from the overrides, else env.yaml, else the default one.

    The whole config is composed only when something else than the address was given.
    """
    values = _light_values(sys.argv[1:] if overrides is None else overrides)
    if values is None:
        return _composed_address()
    settings = _env_file_settings()
    if settings is None:
        return _composed_address()
    typed = {key.rpartition(".")[2]: value for key, value in values.items() if key in (HOST_KEY, PORT_KEY)}
    settings = {**settings, **typed}
    from nemo_gym.config.keys import DEFAULT_HEAD_SERVER_PORT

    port = _port_number(settings.get("port") or DEFAULT_HEAD_SERVER_PORT)
    return HeadAddress(str(settings.get("host") or "127.0.0.1"), port)


def _env_file_settings() -> dict[str, object] | None:
    """`head_server` of env.yaml; None when only the config parser can tell what it says."""
    from nemo_gym.config.roots import resolve_under_roots

    path = resolve_under_roots("env.yaml")
    if not path.is_file():
        return {}
    text = path.read_text(encoding="utf-8")
    if not any(key in text for key in ("head_server", "default_host", "use_absolute_ip", "config_paths")):
        return {}
    return _plain_settings(path, text)


def _plain_settings(path: Path, text: str) -> dict[str, object] | None:
    import yaml

    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError:
        return None
    if not isinstance(content, dict) or content.keys() & {"default_host", "use_absolute_ip", "config_paths"}:
        return None
    settings = content.get("head_server") or {}
    if not isinstance(settings, dict) or any("${" in str(value) for value in settings.values()):
        return None
    return {key: settings[key] for key in ("host", "port") if settings.get(key)}


def _composed_address() -> HeadAddress:
    from nemo_gym.global_config import get_global_config_dict

    head = get_global_config_dict()["head_server"]
    return HeadAddress(str(head["host"]), _port_number(head["port"]))


def _port_number(value: object) -> int:
    try:
        port = int(str(value))
    except ValueError:
        port = 0
    if not 0 < port < 65536:
        raise UsageError(f"{value!r} is no port: +{PORT_KEY} takes a number from 1 to 65535.")
    return port
