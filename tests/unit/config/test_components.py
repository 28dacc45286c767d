"""The components and environments that can be found."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nemo_gym.agent_registry import discover_agents
from nemo_gym.config.errors import RegistryError
from nemo_gym.discovery import (
    ConfigMetadata,
    discover_environments,
    read_config_metadata,
    read_environment_details,
    read_resources_server_value,
)
from nemo_gym.model_registry import discover_models
from nemo_gym.registry import EnvironmentCatalogEntry, discover_environment_catalog, resolve_catalog_entry
from nemo_gym.resources_server_registry import discover_resources_servers
from nemo_gym.server_metadata import (
    AgentDatasetsMetadata,
    ResourcesServerMetadata,
    visit_agent_datasets,
    visit_resources_server,
)

Write = Callable[[str, str], Path]

AGENT = "a: {responses_api_agents: {%s: {entrypoint: app.py%s}}}\n"
SERVER = "s: {resources_servers: {quiz: {entrypoint: app.py, domain: math, description: Sums, value: Adds}}}\n"
DATASETS = ", datasets: [{name: d, type: %s, jsonl_fpath: d.jsonl}]"
MANIFEST = """
name: {name}
version: 1.0.0
kind: {kind}
integration_profile: custom-gym-verifier
domain: games
description: Guess words
modality: text
"""


@pytest.fixture
def better_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root before the project."""
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(tmp_path / "extra"))
    return tmp_path / "extra"


def test_agents_are_folders_with_code_or_an_agents_config(write: Write) -> None:
    write("responses_api_agents/coded/app.py", "")
    write("responses_api_agents/configured/configs/configured.yaml", AGENT % ("configured", ", resource: 1"))
    write("responses_api_agents/configured/configs/broken.yaml", "a: [")
    write("responses_api_agents/nothing/configs/model.yaml", "m: {responses_api_models: {m: {entrypoint: app.py}}}")
    write("responses_api_agents/nothing/README.md", "")
    write("responses_api_agents/buried/app.py", "")
    write("responses_api_agents/buried/.nemo_gym_tombstone", "")
    agents = discover_agents()
    assert list(agents) == ["coded", "configured"]
    assert list(agents["configured"].variants) == ["configured"] and agents["coded"].variants == {}


@pytest.mark.parametrize(
    ("fields", "self_contained"),
    [
        (", resources_server: {name: '???'}", False),
        (", resources_server: {name: x}, agent_framework: langgraph", True),
        (", resources_server: {name: x}, anthropic_api_key: k", True),
        (", model: x", True),
    ],
)
def test_an_agent_that_brings_its_own_tools_is_self_contained(write: Write, fields: str, self_contained: bool) -> None:
    write("responses_api_agents/x/configs/x.yaml", AGENT % ("x", f", description: Does{fields}"))
    assert discover_agents()["x"].self_contained is self_contained
    assert discover_agents()["x"].description == "Does"


def test_an_agent_without_a_readable_config_is_not_self_contained(write: Write) -> None:
    write("responses_api_agents/x/app.py", "")
    assert not discover_agents()["x"].self_contained


def test_models_are_named_as_they_are_selected_and_better_roots_win(write: Write, better_root: Path) -> None:
    write("responses_api_models/m/configs/m.yaml", "")
    write("responses_api_models/m/configs/flavor.yaml", "[")
    mine = better_root / "responses_api_models/m/configs/m.yaml"
    mine.parent.mkdir(parents=True)
    mine.touch()
    models = discover_models()
    assert [(entry.name, entry.model_group) for entry in models.values()] == [("m", "m"), ("m/flavor", "m")]
    assert models["m"].config_path == mine


def test_resources_servers_say_their_domain(write: Write) -> None:
    write("resources_servers/quiz/configs/quiz.yaml", SERVER)
    write("resources_servers/quiz/configs/agent_only.yaml", AGENT % ("x", ""))
    write("resources_servers/quiz/configs/hard.yaml", SERVER)
    servers = discover_resources_servers()
    assert list(servers) == ["quiz", "quiz/hard"]
    assert (servers["quiz"].domain, servers["quiz"].description) == ("math", "Sums")
    assert servers["quiz"].path.name == "quiz"


def test_what_a_config_is_about_may_stand_in_what_it_includes(write: Write, project: Path) -> None:
    write("base.yaml", SERVER)
    including = write("top.yaml", "config_paths: [base.yaml]\nx: ${oc.env:NOT_SET_HERE}\ny: ${gone}\nz: ???\n")
    assert read_config_metadata(including) == ("math", "Sums")
    assert read_resources_server_value(including) == "Adds"
    own = write("own.yaml", "config_paths: [base.yaml]\nm: {responses_api_agents: {k: {description: Mine}}}")
    assert read_config_metadata(own) == ("math", "Mine")
    scratch = "scratch: {domain: games, description: Words}\n"
    copies = write("copy.yaml", scratch + "t: {resources_servers: {quiz: {_copy: scratch}}}")
    assert read_config_metadata(copies) == ("games", "Words")
    unset = "config_paths: [base.yaml]\na: {resources_servers: {q: {domain: ???, description: '${gone}'}}}"
    assert read_config_metadata(write("unset.yaml", unset.replace("???", "'???'"))) == ("math", "Sums")
    for text in ("a: [", "config_paths: [gone.yaml]", "x: {_inherit_from: gone}", "- 1"):
        assert read_config_metadata(write("bad.yaml", text)) == ConfigMetadata(None, None)
    assert read_config_metadata(project / "none.yaml") == (None, None)


def test_details_of_an_environment(write: Write) -> None:
    write("base.yaml", SERVER)
    path = write("top.yaml", "config_paths: [base.yaml]\n" + AGENT % ("kind", DATASETS % "example"))
    details = read_environment_details(path)
    assert (details.resources_servers, details.agents, details.datasets) == (
        ["s (quiz)"],
        ["a (kind)"],
        ["d (example)"],
    )


def entry(name: str, kind: str) -> EnvironmentCatalogEntry:
    return discover_environment_catalog()[(kind, name)]  # type: ignore[index]


def test_the_catalog_has_manifests_plain_configs_and_servers_with_an_agent(write: Write) -> None:
    benchmark = SERVER + AGENT % ("k", DATASETS % "benchmark")
    write("environments/words/manifest.yaml", MANIFEST.format(name="words", kind="environment") + "experimental: false")
    write("environments/words/config.yaml", SERVER)
    write("environments/Plain/config.yaml", SERVER)
    write("environments/buried/config.yaml", SERVER)
    write("environments/buried/.nemo_gym_tombstone", "")
    write("benchmarks/aime/manifest.yaml", MANIFEST.format(name="aime", kind="benchmark") + "config_path: main.yaml")
    write("benchmarks/aime/main.yaml", benchmark)
    write("benchmarks/aime/extra.yaml", benchmark)
    write("benchmarks/group/one/config.yaml", benchmark)
    write("benchmarks/group/prompts/user.yaml", "user: x")
    write("benchmarks/broken/config.yaml", "a: [")
    write("resources_servers/quiz/configs/quiz.yaml", SERVER + AGENT % ("k", DATASETS % "example"))
    write("resources_servers/quiz/configs/words.yaml", SERVER + AGENT % ("k", DATASETS % "example"))
    write("resources_servers/quiz/configs/alone.yaml", SERVER)
    write("resources_servers/quiz/configs/test.yaml", benchmark)
    catalog = discover_environment_catalog()
    assert list(catalog) == [
        ("benchmark", "aime"),
        ("benchmark", "aime/extra"),
        ("benchmark", "broken"),
        ("benchmark", "group/one"),
        ("environment", "Plain"),
        ("environment", "resources_servers/quiz"),
        ("benchmark", "resources_servers/quiz/test"),
        ("environment", "words"),
    ]
    words, plain = entry("words", "environment"), entry("Plain", "environment")
    assert (words.status, words.version, words.domain, words.lifecycle, words.licensing) == (
        None,
        "1.0.0",
        "games",
        "active",
        "unknown",
    )
    assert (plain.status, plain.version, plain.domain, plain.description) == ("no-manifest", None, "math", "Sums")
    assert entry("aime", "benchmark").status == "experimental"
    assert entry("aime", "benchmark").config_path.name == "main.yaml"
    assert entry("resources_servers/quiz/test", "benchmark").resources_server_selector == "quiz/test"
    assert "words" in discover_environments() and "aime" not in discover_environments()


def test_a_better_root_hides_an_entry(write: Write, better_root: Path) -> None:
    write("environments/words/config.yaml", SERVER)
    mine = better_root / "environments/words/config.yaml"
    mine.parent.mkdir(parents=True)
    mine.write_text(SERVER)
    assert entry("words", "environment").config_path == mine


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (MANIFEST.format(name="other", kind="environment"), "in this place it must be `words`"),
        (MANIFEST.format(name="words", kind="benchmark"), "in environments/ it must be `environment`"),
        (MANIFEST.format(name="words", kind="environment"), "config.yaml, which does not exist"),
        (MANIFEST.format(name="words", kind="environment") + "config_path: ../../x.yaml", "leads out of"),
    ],
)
def test_a_manifest_that_contradicts_its_place_is_listed_as_invalid(write: Write, text: str, told: str) -> None:
    write("environments/words/manifest.yaml", text)
    write("environments/plain/config.yaml", SERVER)
    write("x.yaml", "")
    listed = entry("words", "environment")
    assert listed.status == "invalid" and told in (listed.problem or "")
    assert entry("plain", "environment").problem is None
    with pytest.raises(RegistryError, match=told):
        resolve_catalog_entry("words")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: [", "can't be read as YAML"),
        ("name: words", "says nothing about: version, kind"),
        (MANIFEST.format(name="words", kind="environment") + "config_path: [1]", "config_path must be"),
    ],
)
def test_a_manifest_that_cannot_be_read_is_listed_with_its_config(write: Write, text: str, told: str) -> None:
    write("environments/words/config.yaml", SERVER)
    write("environments/words/manifest.yaml", text)
    listed = entry("words", "environment")
    assert listed.status == "invalid" and told in (listed.problem or "")
    assert (listed.domain, listed.description) == ("math", "Sums")
    assert list(discover_environment_catalog()) == [("environment", "words")]


def test_an_entry_is_found_by_its_name(write: Write) -> None:
    write("environments/words/config.yaml", SERVER)
    assert resolve_catalog_entry("words").kind == "environment"
    with pytest.raises(RegistryError, match=r"no environment or benchmark `wrods`.*Did you mean `words`"):
        resolve_catalog_entry("wrods")
    with pytest.raises(RegistryError, match="no benchmark `words`"):
        resolve_catalog_entry("words", "benchmark")
    write("resources_servers/quiz/configs/quiz.yaml", SERVER + AGENT % ("k", DATASETS % "example"))
    with pytest.raises(RegistryError, match="`quiz`, but the resources server `resources_servers/quiz`"):
        resolve_catalog_entry("quiz")
    write("benchmarks/words/config.yaml", SERVER + AGENT % ("k", DATASETS % "benchmark"))
    with pytest.raises(RegistryError, match="both an environment and a benchmark"):
        resolve_catalog_entry("words")
    assert resolve_catalog_entry("words", "benchmark").kind == "benchmark"
    assert resolve_catalog_entry("words", entries={("environment", "words"): entry("words", "environment")})


def test_an_old_name_leads_to_the_new_one(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write("environments/hermes_reasoning_gym/config.yaml", SERVER)
    assert resolve_catalog_entry("reasoning_gym_hermes").name == "hermes_reasoning_gym"
    assert "is now called `hermes_reasoning_gym`" in capsys.readouterr().err


def test_nothing_there_is_nothing_found() -> None:
    assert not any([discover_agents(), discover_models(), discover_resources_servers(), discover_environment_catalog()])


def test_fields_for_readmes() -> None:
    data = {
        "s": {"resources_servers": {"quiz": {"domain": "math", "verified": True, "value": "v"}}},
        "a": {
            "responses_api_agents": {
                "k": {
                    "datasets": [
                        {"type": "train", "license": "MIT", "source": {"repo_id": "o/d"}},
                        {"type": "example"},
                    ]
                }
            }
        },
    }
    assert visit_resources_server(data) == ResourcesServerMetadata("math", None, "v", True, None)
    assert visit_agent_datasets(data) == AgentDatasetsMetadata(["train", "example"], "MIT", "o/d")
    assert visit_resources_server({}) == ResourcesServerMetadata()
    assert visit_agent_datasets({}) == AgentDatasetsMetadata()
