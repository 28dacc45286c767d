"""`gym env init|validate|test|publish`: environments that a manifest describes."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.cli import all_tests
from nemo_gym.environment import verifier_run
from tests.unit.cli.conftest import Gym


@pytest.fixture
def words(gym: Gym, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh environment `zq_words`, whose server runs in this venv."""

    class Venv:
        python = Path(sys.executable)

    monkeypatch.setattr(verifier_run, "ensure_venv", lambda *args, **options: Venv)
    assert gym("env", "init", "--environment", "zq_words").code == 0
    return tmp_path / "environments/zq_words"


def test_init_tells_what_it_made_and_that_nothing_is_left_to_make(gym: Gym, tmp_path: Path) -> None:
    made = gym("env", "init", "--resources-server", "zq_sums")
    lines = made.out.splitlines()
    assert (made.code, lines[0]) == (0, f"✓ Created {tmp_path / 'resources_servers/zq_sums'}")
    assert "  resources_servers/zq_sums/app.py" in lines and "  resources_servers/zq_sums/data/example.jsonl" in lines
    again = gym("env", "init", "--resources-server", "zq_sums")
    assert (again.code, again.out.splitlines()) == (
        0,
        [f"✓ {tmp_path / 'resources_servers/zq_sums'} is already up to date."],
    )
    (tmp_path / "resources_servers/zq_sums/app.py").write_text("mine\n")
    kept = gym("env", "init", "--resources-server", "zq_sums")
    assert kept.code == 0 and "nothing was changed" in kept.out
    assert (tmp_path / "resources_servers/zq_sums/app.py").read_text() == "mine\n"


def test_init_takes_any_path_as_the_legacy_command_did(gym: Gym, tmp_path: Path) -> None:
    assert gym("env", "init", "+entrypoint=some/where/zq_sums").code == 0
    assert "class ZqSumsResourcesServer" in (tmp_path / "some/where/zq_sums/app.py").read_text()


def test_a_server_that_was_made_composes_and_has_a_schema(gym: Gym, tmp_path: Path) -> None:
    gym("env", "init", "--resources-server", "zq_sums")
    assert gym("env", "validate", "--resources-server", "zq_sums").out == "✓ Config is valid.\n"
    schema = json.loads(gym("env", "schema", "--resources-server", "zq_sums").out)
    assert schema["required"] == ["expected_answer"]


@pytest.mark.parametrize(
    ("argv", "code", "told"),
    [
        ((), 2, "missing entrypoint"),
        (("--resources-server", "a", "--environment", "b"), 2, "exclude each other"),
        (("--environment", "a", "--benchmark", "b"), 2, "exclude each other"),
        (("--resources-server", "a", "--profile", "external-agent-loop"), 2, "for --environment and --benchmark"),
        (("--reuse-verifier", "a"), 2, "for --environment and --benchmark"),
        (("--environment", "a", "--higher-is-better", "--lower-is-better"), 2, "exclude each other"),
        (("--environment", "a", "--profile", "own"), 2, "invalid choice"),
        (("--environment", "a", "--reward-range", "0", "1"), 1, "--reuse-verifier"),
        (("--environment", "a", "--reward-range", "0"), 2, "expected 2 arguments"),
        (("--resources-server", "A b"), 1, "no good name"),
        (("--resources-server", "code"), 1, "a module of Python itself"),
        (("--environment", "json"), 1, "a module of Python itself"),
        (("--environment", "a", "+reward_range=x", "+higher_is_better=true"), 1, "must be two numbers"),
    ],
)
def test_init_says_what_does_not_go_together(
    gym: Gym, tmp_path: Path, argv: tuple[str, ...], code: int, told: str
) -> None:
    ended = gym("env", "init", *argv)
    assert ended.code == code and told in ended.err, ended.err
    assert not (tmp_path / "environments").exists() and not (tmp_path / "resources_servers").exists()


def test_a_verifier_is_reused(gym: Gym, tmp_path: Path) -> None:
    gym("env", "init", "--resources-server", "zq_sums")
    range_ = ("--reward-range", "-1", "0.5", "--lower-is-better")
    ended = gym("env", "init", "--benchmark", "zq_hard", "--reuse-verifier", "zq_sums", *range_)
    assert ended.code == 0, ended.err
    assert not (tmp_path / "resources_servers/zq_hard").exists()
    text = (tmp_path / "benchmarks/zq_hard/manifest.yaml").read_text()
    assert "- -1.0\n  - 0.5\n  higher_is_better: false" in text
    assert gym("env", "validate", "zq_hard").code == 0


def test_validate_tells_what_an_environment_is_made_of(gym: Gym, words: Path) -> None:
    ended = gym("env", "validate", "zq_words")
    assert ended.out.splitlines() == [
        "✓ Manifest: zq_words 0.1.0 kind=environment profile=custom-gym-verifier inferred=custom-gym-verifier",
        "  the agent is simple_agent",
        "✓ Components:",
        "  resources_server: zq_words_resources_server -> zq_words [resources_servers]",
        "  agent_server: zq_words_agent -> simple_agent [responses_api_agents]",
        "  environment_server: zq_words_environment_server -> legacy_agent [environment_servers]",
        "✓ Datasets:",
        "  zq_words: 5 rows (example)",
    ]
    report = json.loads(gym("env", "validate", "--manifest", str(words / "manifest.yaml"), "--json").out)
    assert list(report) == [
        "name", "version", "kind", "declared_profile", "inferred_profile", "profile_evidence", "manifest_path",
        "config_path", "components", "datasets", "rollout_driver", "grading_mode", "synchronized_fields", "warnings",
    ]  # fmt: skip
    assert list(report["components"][0]) == ["role", "name", "implementation", "boundary", "entrypoint"]
    assert list(report["datasets"][0]) == ["name", "type", "path", "rows", "prompt_config"]


def test_validate_can_take_over_what_the_config_says(gym: Gym, words: Path) -> None:
    manifest = words / "manifest.yaml"
    manifest.write_text(manifest.read_text().replace("agent_server: simple_agent", "agent_server: other"))
    differing = gym("env", "validate", "zq_words")
    assert differing.code == 1 and "agent_server: 'other' in the manifest" in differing.err
    synchronized = gym("env", "validate", "zq_words", "--sync")
    assert synchronized.out.splitlines()[-1] == "✓ Synchronized: agent_server"
    assert gym("env", "validate", "zq_words").code == 0


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (("zq_words", "--strict"), "do not accept runtime config overrides: strict"),
        (("zq_words", "--model", "m"), "do not accept runtime config overrides: policy_model_name"),
        (("zq_words", "--manifest", "m.yaml"), "a NAME beside it"),
        (("--manifest", "m.yaml", "--kind", "benchmark"), "--kind beside it"),
        (("--manifest", "gone.yaml"), "no manifest"),
        (("zq_wrods",), "Did you mean `zq_words`?"),
        (("zq_words", "--kind", "benchmark"), "no benchmark `zq_words`"),
        (("zq_plain",), "`gym env validate --environment zq_plain`"),
    ],
)
def test_validate_refuses_what_it_cannot_heed(gym: Gym, words: Path, argv: tuple[str, ...], told: str) -> None:
    plain = words.parent / "zq_plain"
    plain.mkdir()
    (plain / "config.yaml").write_text("{}")
    ended = gym("env", "validate", *argv)
    assert (ended.code, ended.out) == (1, "") and told in ended.err


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("test", "`gym env test --resources-server zq_sums`"),
        ("validate", "`gym env validate --resources-server zq_sums`"),
        ("publish", "docs/publishing.md"),
    ],
)
@pytest.mark.parametrize("name", ["zq_sums", "resources_servers/zq_sums"])
def test_a_server_without_a_manifest_is_sent_where_it_can_go(gym: Gym, command: str, told: str, name: str) -> None:
    gym("env", "init", "--resources-server", "zq_sums")
    ended = gym("env", command, name)
    assert ended.code == 1 and told in ended.err


def test_an_environments_file_is_validated(gym: Gym, tmp_path: Path) -> None:
    text = (
        "from nemo_gym import Environment\nenv = Environment('zq_one', tasks=[{'question': 'Say 1.'}])\n"
        "@env.verify\ndef right(response):\n    return response.text == '1'\n"
    )
    (tmp_path / "one.py").write_text(text)
    ended = gym("env", "validate", "one.py")
    assert (ended.code, ended.out) == (0, "✓ zq_one is valid: 1 row. Its verifier is run by `gym env test one.py`.\n")
    (tmp_path / "one.py").write_text(text.replace("'question'", "'asked'"))
    assert gym("env", "validate", "one.py").code == 1


def test_a_shipped_name_is_taken_with_a_warning(gym: Gym) -> None:
    assert "will hide the one in" in gym("env", "init", "--resources-server", "mcqa").err
    assert "will hide" not in gym("env", "init", "--resources-server", "mcqa").err
    assert "will hide the one in" in gym("env", "init", "--environment", "wordle").err


def test_test_runs_the_cases_of_a_verifier(gym: Gym, words: Path, tmp_path: Path) -> None:
    ended = gym("env", "test", "zq_words")
    assert (ended.code, ended.out) == (0, "✓ Verifier: zq_words (zq_words) 3 cases passed.\n")
    shown = json.loads(gym("env", "test", "zq_words", "--json").out)
    assert list(shown) == ["name", "kind", "resources_server", "manifest_path", "fixture_path", "cases"]
    assert shown["cases"][0] == {"name": "right answer", "kind": "full_reward", "observed_rewards": [1.0]}
    cases = tmp_path / "resources_servers/zq_words/tests/verifier_cases.jsonl"
    right = cases.read_text()
    cases.write_text(right.replace('"expected_reward": 1.0', '"expected_reward": 0.9'))
    assert gym("env", "test", "zq_words").code == 1
    assert gym("env", "test", "zq_words", "--update-expected").code == 0
    assert cases.read_text() == right


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        ((), "say what to test"),
        (("x", "--resources-server", "y"), "choose one of them"),
        (("x", "--all"), "leave out NAME"),
        (("--all", "--resources-server", "y"), "leave out NAME"),
        (("--resources-server", "y", "--json"), "give its NAME"),
        (("--all", "--update-expected"), "give its NAME"),
        (("--kind", "benchmark"), "give its NAME"),
    ],
)
def test_test_wants_exactly_one_target(gym: Gym, argv: tuple[str, ...], told: str) -> None:
    ended = gym("env", "test", *argv)
    assert ended.code == 2 and told in ended.err


def test_publish_is_a_gate(gym: Gym, words: Path) -> None:
    early = gym("env", "publish", "zq_words")
    assert early.code == 1 and "still has to say: description, authors, licensing" in early.err
    manifest = words / "manifest.yaml"
    text = manifest.read_text().replace("TODO: ", "").replace("- TODO", "- Me").replace("unknown", "MIT", 1)
    manifest.write_text(text)
    ready = gym("env", "publish", "zq_words", "--kind", "environment")
    assert ready.out == "✓ Ready: environment zq_words 0.1.0, experimental, 3 verifier cases passed.\n", ready.err
    assert ready.err.count("README.md still says TODO") == 2
    assert json.loads(gym("env", "publish", "zq_words", "--json").out)["verifier_cases"] == 3
    assert gym("env", "publish").code == 2


Calls = list[tuple[str, str]]


@pytest.fixture
def servers(gym: Gym, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Five servers, of which one has no README.md; what was done with them. Their tests end as their names say."""
    monkeypatch.setattr(all_tests, "trees", lambda kind: [tmp_path / kind] if (tmp_path / kind).is_dir() else [])
    for entrypoint in (
        "resources_servers/passes",
        "resources_servers/fails",
        "resources_servers/bare",
        "responses_api_agents/untested",
        "responses_api_models/crashes",
    ):
        folder = tmp_path / entrypoint
        folder.mkdir(parents=True)
        (folder / "requirements.txt").touch()
        if folder.name != "bare":
            (folder / "README.md").touch()
    calls: Calls = []
    codes = {"passes": 0, "fails": 1, "untested": 5, "crashes": -11}

    def run_tests(entrypoint: str, config: Any) -> int:
        calls.append(("tested", entrypoint))
        return codes[entrypoint.rpartition("/")[2]]

    monkeypatch.setattr(all_tests, "run_tests", run_tests)
    monkeypatch.setattr(all_tests, "example_data_problems", lambda folder: [])
    monkeypatch.setattr(all_tests, "ensure_venv", lambda folder, *args, **options: calls.append(("built", folder.name)))
    return calls


def test_all_tests_every_described_server_and_tells_how_each_ended(gym: Gym, servers: Calls) -> None:
    ended = gym("env", "test", "--all")
    assert ended.code == 1
    assert [entrypoint for _, entrypoint in servers] == [
        "resources_servers/fails",
        "resources_servers/passes",
        "responses_api_agents/untested",
        "responses_api_models/crashes",
    ]
    report = ended.out[ended.out.index("passed:") :].splitlines()
    assert report == [
        "passed: 1 / 4 (25%)",
        "  resources_servers/passes",
        "failed: 1 / 4 (25%)",
        "  resources_servers/fails",
        "without tests: 1 / 4 (25%)",
        "  responses_api_agents/untested",
        "ended otherwise: 1 / 4 (25%)",
        "  responses_api_models/crashes",
        "with wrong example data: 0 / 4 (0%)",
        "To run these tests again: gym env test +entrypoint=resources_servers/fails",
        "To run these tests again: gym env test +entrypoint=responses_api_agents/untested",
        "To run these tests again: gym env test +entrypoint=responses_api_models/crashes",
    ]


def test_shards_share_all_servers(gym: Gym, servers: Calls) -> None:
    first = gym("env", "test", "--all", "+num_shards=2", "+shard_index=1")
    assert [entrypoint for _, entrypoint in servers] == ["resources_servers/passes", "responses_api_models/crashes"]
    assert "passed: 1 / 2" in first.out
    assert gym("env", "test", "--all", "+shard_index=1").code == 1


def test_all_ends_with_0_when_all_passed_and_their_data_is_right(
    gym: Gym, servers: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    only = ("env", "test", "--all", "+num_shards=4", "+shard_index=1")
    assert gym(*only).code == 0
    assert gym(*only, "+fail_on_total_and_test_mismatch=true").code == 1
    monkeypatch.setattr(all_tests, "example_data_problems", lambda folder: ["five rows, please"])
    wrong = gym(*only)
    assert wrong.code == 1 and "five rows, please" in wrong.err and "with wrong example data: 1 / 1" in wrong.out


def test_venvs_can_be_built_without_testing(gym: Gym, servers: Calls) -> None:
    ended = gym("env", "test", "--all", "+setup_only=true")
    assert ended.code == 0 and "4 / 4 venvs are ready." in ended.out
    assert {what for what, _ in servers} == {"built"}


def test_venvs_can_be_deleted_after_their_tests(gym: Gym, servers: Calls, tmp_path: Path) -> None:
    venv = tmp_path / "venvs/resources_servers/passes/.venv"
    venv.mkdir(parents=True)
    only = ("env", "test", "--all", "+num_shards=4", "+shard_index=1", f"+uv_venv_dir={tmp_path / 'venvs'}")
    gym(*only)
    assert venv.exists()
    gym(*only, "+delete_venvs_after_each_test=true")
    assert not venv.exists()
