"""`gym list` and `gym search`."""

import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.cli.listing_table import listing_lines
from tests.unit.cli.conftest import Gym

SERVER = "{n}: {{resources_servers: {{{n}: {{entrypoint: app.py, domain: {d}, description: {t}, value: Counts}}}}}}\n"
AGENT = "a: {{responses_api_agents: {{simple_agent: {{entrypoint: app.py, datasets: [{{name: d, type: {type}}}]}}}}}}\n"
MANIFEST = """
name: words
version: 1.2.0
kind: environment
integration_profile: custom-gym-verifier
domain: games
description: Guess a word
modality: text
licensing: MIT
authors: [Somebody]
reward: {range: [0, 1], higher_is_better: true}
resources_server: zq_words
agent_server: simple_agent
model_server: policy_model
datasets: [{name: example, type: example, jsonl_fpath: rows.jsonl}]
"""


@pytest.fixture
def tree(gym: Gym, tmp_path: Path) -> Path:
    """A folder with a few of everything, away from this checkout's own."""
    files = {
        "environments/words/manifest.yaml": MANIFEST,
        "environments/words/config.yaml": SERVER.format(n="words", d="games", t="Guess a word"),
        "environments/plain/config.yaml": "config_paths: [resources_servers/zq_sums/configs/zq_sums.yaml]",
        "benchmarks/zq_hard/config.yaml": SERVER.format(n="h", d="math", t="Hard sums")
        + AGENT.format(type="benchmark"),
        "benchmarks/words/config.yaml": SERVER.format(n="h", d="math", t="Words as numbers")
        + AGENT.format(type="benchmark"),
        "resources_servers/zq_sums/configs/zq_sums.yaml": SERVER.format(n="zq_sums", d="math", t="Adding"),
        "resources_servers/zq_sums/configs/more.yaml": SERVER.format(n="zq_sums", d="math", t="Adding more"),
        "responses_api_agents/zq_loop/configs/zq_loop.yaml": "a: {responses_api_agents: {zq_loop: {entrypoint: app.py, "
        "agent_framework: x, description: Loops}}}",
        "responses_api_models/zq_model/configs/zq_model.yaml": "",
        "responses_api_models/zq_model/README.md": "# zq_model\n\nFor **tests** only. Not otherwise.\n",
    }
    for name, text in files.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "tree"


def rows(gym: Gym, *argv: str) -> list[dict[str, Any]]:
    ended = gym(*argv, "--json", "--search-dir", "tree")
    assert ended.code == 0, ended.err
    found: list[dict[str, Any]] = json.loads(ended.out)
    return found


def names(gym: Gym, *argv: str) -> list[str]:
    return [row["name"] for row in rows(gym, *argv)]


def test_environments_are_the_whole_catalog(gym: Gym, tree: Path) -> None:
    listed = {(row["kind"], row["name"]): row for row in rows(gym, "list", "environments")}
    assert listed["environment", "words"] == {
        "name": "words",
        "kind": "environment",
        "status": "experimental",
        "domain": "games",
        "description": "Guess a word",
        "version": "1.2.0",
        "integration_profile": "custom-gym-verifier",
        "modality": "text",
        "licensing": "MIT",
        "lifecycle": "active",
    }
    assert listed["environment", "plain"]["description"] == "Adding"
    assert ("benchmark", "zq_hard") in listed


def test_status_is_left_out_where_there_is_nothing_to_say(gym: Gym, tree: Path) -> None:
    (tree / "environments/words/manifest.yaml").write_text(MANIFEST + "experimental: false\n")
    (row,) = [row for row in rows(gym, "list", "environments", "--kind", "environment") if row["name"] == "words"]
    assert "status" not in row


def test_benchmarks_are_the_catalog_of_that_kind(gym: Gym, tree: Path) -> None:
    listed = rows(gym, "list", "benchmarks")
    assert {"zq_hard", "words"} <= {row["name"] for row in listed}
    assert {row["kind"] for row in listed} == {"benchmark"}


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (("--domain", "games", "--licensing", "MIT"), ["words"]),
        (("--licensing", "MIT", "--lifecycle", "active", "--modality", "text"), ["words"]),
        (("--status", "experimental", "--licensing", "MIT", "--kind", "benchmark"), []),
    ],
)
def test_filters_are_all_to_be_met(gym: Gym, tree: Path, filters: tuple[str, ...], expected: list[str]) -> None:
    assert names(gym, "list", "environments", *filters) == expected


def test_entries_that_say_nothing_of_a_filter_are_counted(gym: Gym, tree: Path) -> None:
    ended = gym("list", "environments", "--licensing", "MIT", "--search-dir", "tree")
    assert "entries say nothing about licensing" in ended.err
    assert "entries say" not in gym("list", "environments", "--status", "experimental", "--search-dir", "tree").err


def test_a_list_for_people_has_a_title_and_the_columns(gym: Gym, tree: Path) -> None:
    ended = gym("search", "zq_hard", "--search-dir", "tree")
    assert ended.out.splitlines() == [
        "Environments matching 'zq_hard' (1, manifests 0/1)",
        "",
        "Name     Kind       Status       Lifecycle  Domain  Description",
        "-------  ---------  -----------  ---------  ------  -----------",
        "zq_hard  benchmark  no-manifest             math    Hard sums",
    ]


def test_a_long_description_is_wrapped_on_a_terminal() -> None:
    lines = listing_lines(("Name", "Description"), [("a", "one two three four five six seven eight")], 34)
    assert lines[2:] == ["a     one two three four five six", "      seven eight"]
    assert listing_lines(("Name", "Description"), [("a", "one two three four five six seven eight")], None)[2] == (
        "a     one two three four five six seven eight"
    )


def test_one_entry_is_told_in_full(gym: Gym, tree: Path) -> None:
    ended = gym("list", "environments", "words", "--kind", "environment", "--json", "--search-dir", "tree")
    told = json.loads(ended.out)
    assert (told["name"], told["type"], told["domain"]) == ("words", "environment", "games")
    assert told["description"] == "Guess a word\nValue: Counts"
    assert told["usage_example"] == "gym env start --environment words --model-type vllm_model"
    assert told["details"]["profile"] == "custom-gym-verifier"
    assert told["details"]["resources servers"] == "words (words)"
    human = gym("list", "benchmarks", "zq_hard", "--search-dir", "tree").out
    assert "The zq_hard benchmark (domain: math)" in human and "--benchmark zq_hard --model-type" in human


def test_an_entry_of_another_kind_is_pointed_to(gym: Gym, tree: Path) -> None:
    ended = gym("list", "benchmarks", "plain", "--search-dir", "tree")
    assert ended.code == 1 and "`gym list environments plain`" in ended.err
    both = gym("list", "environments", "words", "--search-dir", "tree")
    assert both.code == 1 and "--kind" in both.err


@pytest.mark.parametrize(
    ("things", "name", "hint"),
    [
        ("environments", "wrods", "words"),
        ("resources-servers", "zq_sum", "zq_sums"),
        ("agents", "zq_lop", "zq_loop"),
        ("models", "zq_modell", "zq_model"),
    ],
)
def test_an_unknown_name_gets_a_suggestion(gym: Gym, tree: Path, things: str, name: str, hint: str) -> None:
    ended = gym("list", things, name, "--search-dir", "tree")
    assert ended.code == 1 and ended.out == "" and f"Did you mean `{hint}`?" in ended.err


def test_resources_servers_are_named_as_they_are_selected(gym: Gym, tree: Path) -> None:
    listed = {row["name"]: row for row in rows(gym, "list", "resources-servers")}
    assert listed["zq_sums/more"] == {"name": "zq_sums/more", "domain": "math", "description": "Adding more"}
    told = json.loads(gym("list", "resources-servers", "zq_sums", "--json", "--search-dir", "tree").out)
    assert told["description"] == "Adding\nValue: Counts"
    assert told["usage_example"] == "gym env start --resources-server zq_sums --model-type vllm_model"


def test_agents_say_whether_they_bring_their_own_tools(gym: Gym, tree: Path) -> None:
    listed = {row["name"]: row for row in rows(gym, "list", "agents")}
    assert listed["zq_loop"] == {
        "name": "zq_loop",
        "pattern": "B (self-contained)",
        "self_contained": True,
        "variants": ["zq_loop"],
        "description": "Loops",
    }
    told = json.loads(gym("list", "agents", "zq_loop", "--json", "--search-dir", "tree").out)
    assert told["details"]["composition"] == "B (self-contained)" and told["usage_example"] is None


def test_models_say_what_they_are_for(gym: Gym, tree: Path) -> None:
    """B12: near-identical model servers can be told apart in the list."""
    listed = {row["name"]: row for row in rows(gym, "list", "models")}
    assert (listed["zq_model"]["model_group"], listed["zq_model"]["description"]) == ("zq_model", "For tests only")


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (("zq_hard",), ["zq_hard"]),
        (("zq_hrad",), ["zq_hard"]),
        (("resources-servers", "more"), ["zq_sums/more"]),
        (("agents", "loops"), ["zq_loop"]),
        (("benchmarks", "guess"), []),
        (("models",), []),
    ],
)
def test_search_finds_by_part_or_likeness(gym: Gym, tree: Path, asked: tuple[str, ...], expected: list[str]) -> None:
    assert [name for name in names(gym, "search", *asked) if "zq" in name or name == "words"] == expected


def test_nothing_found_is_told_and_no_error(gym: Gym, tree: Path) -> None:
    ended = gym("search", "agents", "qqqqqqqq", "--search-dir", "tree")
    assert (ended.code, ended.out) == (0, "No agents match 'qqqqqqqq'.\n")
    assert gym("search", "agents", "qqqqqqqq", "--json").out == "[]\n"


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (("search",), "say what to look for"),
        (("search", "benchmark", "x"), "Did you mean `benchmarks`?"),
        (("search", "agents", "x", "y"), "unexpected argument 'y'"),
        (("list", "environments", "--kind", "x"), "invalid choice"),
    ],
)
def test_a_wrong_line_is_a_usage_error(gym: Gym, argv: tuple[str, ...], told: str) -> None:
    ended = gym(*argv)
    assert ended.code == 2 and told in ended.err


def test_an_override_nobody_reads_is_refused(gym: Gym) -> None:
    ended = gym("list", "agents", "+querry=x")
    assert ended.code == 1 and "Did you mean `query`?" in ended.err


def test_an_invalid_manifest_is_listed_and_told(gym: Gym, tree: Path) -> None:
    (tree / "environments/words/manifest.yaml").write_text(MANIFEST.replace("name: words", "name: other"))
    ended = gym("list", "environments", "--status", "invalid", "--json", "--search-dir", "tree")
    assert [row["name"] for row in json.loads(ended.out)] == ["words"]
    assert "in this place it must be `words`" in ended.err


def test_a_manifest_with_a_wrong_field_is_invalid(gym: Gym, tree: Path) -> None:
    (tree / "environments/words/manifest.yaml").write_text(MANIFEST.replace("domain: games", "domain: dancing"))
    ended = gym("list", "environments", "--status", "invalid", "--json", "--search-dir", "tree")
    assert [row["name"] for row in json.loads(ended.out)] == ["words"]
    assert "domain" in ended.err


def test_a_server_is_described_without_the_folder_it_is_listed_with(gym: Gym) -> None:
    ended = gym("list", "environments", "mcqa")
    assert ended.code == 0 and "--resources-server mcqa" in ended.out


def test_the_importable_list_of_benchmarks_says_who_answers(
    gym: Gym, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nemo_gym.cli.eval import list_benchmarks

    config = (
        "r: {resources_servers: {q: {entrypoint: app.py, domain: math, description: Sums}}}\n"
        "a: {responses_api_agents: {k: {entrypoint: app.py, resources_server: {type: resources_servers, name: r}, "
        "model_server: {type: responses_api_models, name: policy_model}, datasets: [{name: b, type: benchmark, "
        "jsonl_fpath: b.jsonl, prepare_script: p.py, num_repeats: 4}]}}}\n"
    )
    (tree / "benchmarks/zq_hard/config.yaml").write_text(config)
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(tree))
    monkeypatch.setattr("sys.argv", ["gym", "+json=true", "+query=zq_hard"])
    with pytest.warns(UserWarning, match="words"), redirect_stdout(io.StringIO()) as out:
        list_benchmarks()
    assert json.loads(out.getvalue()) == [
        {
            "name": "zq_hard",
            "agent_name": "a",
            "environment_server": "a_environment_server",
            "domain": "math",
            "num_repeats": 4,
            "description": "Sums",
        }
    ]
