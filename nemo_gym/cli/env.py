"""`gym env`: start, inspect and test the servers of an environment."""

import importlib
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from nemo_gym.cli.utils import flag_is_on

if TYPE_CHECKING:
    from nemo_gym.cli.command_configs import PipListConfig as PipListConfig
    from nemo_gym.cli.command_configs import RunConfig as RunConfig
    from nemo_gym.cli.command_configs import TestAllConfig as TestAllConfig
    from nemo_gym.cli.command_configs import TestConfig as TestConfig
    from nemo_gym.cli.run_helper import RunHelper as RunHelper

_HOMES = {
    "RunHelper": "nemo_gym.cli.run_helper",
    "StatusCommand": "nemo_gym.server_status",
    **dict.fromkeys(("RunConfig", "TestConfig", "TestAllConfig", "PipListConfig"), "nemo_gym.cli.command_configs"),
}
_MANIFEST_KEYS = ("kind", "sync", "json", "update_expected", "manifest_path", "catalog_kind", "onboarding_name")


def __getattr__(name: str) -> Any:
    """Names that need heavy imports load when first used: `gym env status` needs none of them."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def run() -> None:
    """Start the servers and stay until they are stopped: by Ctrl-C or SIGTERM, or because one of them ended."""
    from nemo_gym.launch.signals import StopRequested, stop_signals

    try:
        with stop_signals():
            _run()
    except StopRequested:
        return


def _run() -> None:
    from nemo_gym.cli import env
    from nemo_gym.cli.composing import while_the_fork_server_imports, with_default_model

    with while_the_fork_server_imports():
        from nemo_gym.global_config import GlobalConfigDictParserConfig
        from nemo_gym.launch.restarts import DEFAULT_RESTARTS

        with_default_model()
        env.RunHelper(restarts=DEFAULT_RESTARTS).run(GlobalConfigDictParserConfig())


def start_detached() -> None:
    """Start the servers in the background; return when they are ready."""
    from nemo_gym.launch.detach import detach

    raise SystemExit(detach(["env", "start", *sys.argv[1:]]))


def prefetch() -> None:
    """Build the venvs of all servers; start nothing."""
    from nemo_gym.cli.composing import composed
    from nemo_gym.launch.prefetch import prefetch as build

    build(composed())
    print("Prefetch complete.")


def status() -> None:
    """List the servers behind the head server and whether they answer."""
    from nemo_gym.cli.runs import head_address, point_at_other_runs
    from nemo_gym.server_status import StatusCommand

    address = head_address()
    command = StatusCommand(address.url)
    servers = command.discover_servers()
    if not servers:
        point_at_other_runs(address)
    command.display_status(servers, as_json=flag_is_on("json"))


def dump_config() -> None:
    """Print the composed config with every `${...}` resolved and every secret hidden."""
    import yaml

    from nemo_gym.cli.composing import composed
    from nemo_gym.config.interpolations import resolved
    from nemo_gym.config.secrets import Redactor, recursively_hide_secrets

    config = composed()
    shown = resolved(config)
    recursively_hide_secrets(shown)
    masked = Redactor.from_config(config).in_data(shown)
    print(yaml.safe_dump(masked, sort_keys=False, allow_unicode=True), end="")


def dump_origins() -> None:
    """Print every value of the composed config with who set it, one a line; what Gym added itself says so."""
    from nemo_gym.config.origins import dotted, leaves
    from nemo_gym.config.secrets import redacted
    from nemo_gym.global_config import GlobalConfigDictParser, GlobalConfigDictParserConfig

    parser = GlobalConfigDictParser()
    config = parser.parse(GlobalConfigDictParserConfig(skip_exporters=True))
    for path, value in leaves(redacted(config)):
        print(f"{dotted(path)}: {value!r}  # {parser.origins.of(path) or 'set by Gym'}")


def validate() -> None:
    """Compose the config and say whether a run could start from it; a missing model only warns, unless strict."""
    from nemo_gym.cli.composing import composed, without_model
    from nemo_gym.config.errors import ConfigError
    from nemo_gym.config.notices import warn

    given = {token.lstrip("+").partition("=")[0] for token in sys.argv[1:]}
    refused = [key for key in _MANIFEST_KEYS if key in given]
    if refused:
        raise ConfigError(f"{', '.join(refused)} is for catalog entries: a config is checked without it.")
    try:
        composed()
    except ConfigError as error:
        if flag_is_on("strict"):
            raise
        without_model()
        warn(f"valid but for the policy model, which stand-ins replaced here: {error}")
    print("✓ Config is valid.")


def schema() -> None:
    """Print the JSON schema of the rows that a resources server reads."""
    import json

    from nemo_gym.cli.command_configs import RunConfig
    from nemo_gym.cli.component_venv import component_directory
    from nemo_gym.cli.composing import composed
    from nemo_gym.config.errors import ConfigError
    from nemo_gym.task_data import load_task_data_schema

    entrypoint = RunConfig.model_validate(composed()).entrypoint
    directory = component_directory(entrypoint)
    adapter = load_task_data_schema(directory)
    if adapter is None:
        raise ConfigError(f"{entrypoint} ships no task_data.py, so nothing says what its rows hold.")
    print(json.dumps(adapter.json_schema(), indent=2))


def test() -> None:
    """Run a server's tests in its own venv, then check its example data where that is asked for."""
    from nemo_gym.cli.command_configs import TestConfig
    from nemo_gym.cli.component_venv import component_directory, run_tests
    from nemo_gym.cli.composing import composed
    from nemo_gym.cli.example_data import example_data_problems

    config = composed()
    wanted = TestConfig.model_validate(config)
    code = run_tests(wanted.entrypoint, config)
    if code:
        raise SystemExit(code)
    if wanted.should_validate_data and wanted.entrypoint.startswith("resources_servers/"):
        problems = example_data_problems(component_directory(wanted.entrypoint))
        for problem in problems:
            print(f"Error: {problem}", file=sys.stderr)
        if problems:
            raise SystemExit(1)


def pip_list() -> None:
    """List the packages a server runs with."""
    from nemo_gym.cli.command_configs import PipListConfig
    from nemo_gym.cli.component_venv import list_packages
    from nemo_gym.cli.composing import composed

    config = composed()
    wanted = PipListConfig.model_validate(config)
    list_packages(wanted.entrypoint, config, style=wanted.format, outdated=wanted.outdated)


def test_all() -> NoReturn:
    """Run every server's tests and check its example data."""
    from nemo_gym.cli.all_tests import test_all as run_all
    from nemo_gym.cli.command_configs import TestAllConfig
    from nemo_gym.cli.composing import composed

    config = composed()
    raise SystemExit(run_all(TestAllConfig.model_validate(config), config))


def init_resources_server() -> None:
    """Write a new resources server's files."""
    from nemo_gym.cli.scaffold import init

    init()
