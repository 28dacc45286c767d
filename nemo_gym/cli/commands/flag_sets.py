"""The flags that several commands share."""

from dataclasses import replace

from nemo_gym.cli.flags import (
    ConfigFlag,
    EntrypointFlag,
    LiteralFlag,
    NamesFlag,
    SearchDirFlag,
    SecretFlag,
    SelectorFlag,
    SwitchFlag,
    TextFlag,
    UrlFlag,
    Words,
)
from nemo_gym.cli.one_file import EnvironmentFileWord

FILE = EnvironmentFileWord(names=("file",), metavar="FILE.py", help="an environment in one file, by its path")
CONFIG = ConfigFlag(names=("--config",), metavar="PATH", help="a config file; may be repeated")
BENCHMARK = SelectorFlag(names=("--benchmark",), help="a benchmark's config; may be repeated")
RESOURCES_SERVER = SelectorFlag(names=("--resources-server",), help="a resources server's config; may be repeated")
MODEL_TYPE = SelectorFlag(names=("--model-type",), help="the model server that serves the policy", repeatable=False)
SELECT = (
    CONFIG,
    BENCHMARK,
    SelectorFlag(names=("--environment",), help="an environment's config; may be repeated"),
    RESOURCES_SERVER,
    MODEL_TYPE,
    SelectorFlag(names=("--agent-type",), help="the agent to run instead of the environment's own", repeatable=False),
)
ALLOW_PAIRING = SwitchFlag(
    names=("--allow-unsupported-pairing",),
    key="allow_unsupported_pairing",
    help="run an agent or model server with an environment that does not list it",
)
SEARCH_DIR = SearchDirFlag(names=("--search-dir",), help="another folder to find components in; may be repeated")
MODEL = (
    TextFlag(names=("--model", "-m"), key="policy_model_name", metavar="NAME", help="the policy model's name"),
    UrlFlag(names=("--model-url",), key="policy_base_url", metavar="URL", help="where the policy model is served"),
    SecretFlag(
        names=("--model-api-key",),
        key="policy_api_key",
        metavar="KEY",
        help="its API key; env:NAME reads it from a variable and keeps it out of the process list",
    ),
)
START = (*SELECT, ALLOW_PAIRING, SEARCH_DIR, *MODEL)
ONE_SERVER = EntrypointFlag(names=("--resources-server",), key="entrypoint", help="the resources server")
JSON = SwitchFlag(names=("--json",), key="json", help="print JSON")
KIND = TextFlag(
    names=("--kind",), key="catalog_kind", choices=("environment", "benchmark"), help="where both have the name"
)
ENTRY = Words(names=("name",), key="onboarding_name", metavar="NAME", help="an environment that has a manifest")
ENTRY_OR_FILE = replace(ENTRY, help="an environment that has a manifest, or the FILE.py of a one-file one")
LISTED = (JSON, SEARCH_DIR)
ONE_OF_THEM = Words(names=("name",), key="component_name", metavar="NAME", help="say more about this one only")
PORT = LiteralFlag(
    names=("--port",), key="head_server.port", metavar="P", help="the head server port of the run that is meant"
)
INPUT = TextFlag(names=("--input", "-i"), key="input_jsonl_fpath", metavar="FILE", help="the rows, as JSON lines")
OUTPUT = TextFlag(names=("--output", "-o"), key="output_jsonl_fpath", metavar="FILE", help="where results are written")
PROMPT = TextFlag(names=("--prompt-config",), key="prompt_config", metavar="PATH", help="prompt templates for the rows")
HEALTH = (
    SwitchFlag(names=("--no-health-check",), key="disable_health_check", help="skip the health checks at the end"),
    LiteralFlag(
        names=("--health-check-workers",), key="health_check_workers", metavar="N", help="processes that check"
    ),
    NamesFlag(
        names=("--health-check-ignore",), key="health_check_ignored_checks", metavar="A,B", help="checks to leave out"
    ),
)
REQUIRE_COMPLETE = SwitchFlag(
    names=("--require-complete",), key="require_complete", help="end with 1 when a rollout is not measured"
)
