"""`validate_environment`: manifest, config, data and code against each other."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from nemo_gym.config.errors import ConfigError
from nemo_gym.environment.errors import EnvironmentValidationError, ManifestError
from nemo_gym.environment.validation import validate_environment
from tests.unit.environment.conftest import CONFIG, MANIFEST, ROW, Write

Manifest = Callable[..., Path]

AGENT = """
from responses_api_agents.simple_agent.app import SimpleAgent

class Other:
    pass

class Mine(SimpleAgent):
    {body}

if __name__ == "__main__":
    Mine.run_webserver()
"""


def test_a_right_environment_is_told_in_full(manifest: Manifest, project: Path) -> None:
    path = manifest()
    report = validate_environment(path)
    assert (report.name, report.version, report.kind) == ("words", "0.1.0", "environment")
    assert report.declared_profile == report.inferred_profile == "custom-gym-verifier"
    assert [(each.role, each.name, each.implementation, each.boundary) for each in report.components] == [
        ("resources_server", "words", "words", "resources_servers"),
        ("agent_server", "words_agent", "simple_agent", "responses_api_agents"),
        ("environment_server", "words_environment_server", "legacy_agent", "environment_servers"),
    ]
    assert [(each.name, each.rows, each.type) for each in report.datasets] == [("example", 2, "example")]
    assert report.config_path == str(project / "environments/words/config.yaml")
    assert (report.grading_mode, report.synchronized_fields, report.warnings) == ("strict", [], [])


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"name": "other"}, "in this place it must be `words`"),
        ({"config_path": "gone.yaml"}, "gone.yaml, which does not exist"),
        ({"grading_mode": "mild"}, "grading_mode: 'mild' in the manifest, 'strict' in the config"),
        ({"agent_server": "other"}, "agent_server: 'other'"),
        ({"dataset_owner": "words"}, "declares no data sets"),
        ({"datasets": [{**MANIFEST["datasets"][0], "num_repeats": 3}]}, "datasets: "),  # type: ignore[index]
    ],
)
def test_a_manifest_that_says_otherwise_is_an_error(manifest: Manifest, changed: dict[str, object], told: str) -> None:
    with pytest.raises(EnvironmentValidationError) as raised:
        validate_environment(manifest(**changed))
    assert told in str(raised.value)


def test_a_benchmark_doesnt_belong_among_environments(manifest: Manifest) -> None:
    benchmark = {
        "kind": "benchmark",
        "canonical_split": "test",
        "prompt_source": "prepared",
        "datasets": [{"name": "b", "type": "benchmark", "jsonl_fpath": "b", "prepare_script": "p.py"}],
    }
    with pytest.raises(EnvironmentValidationError, match="doesn't belong in"):
        validate_environment(manifest(**benchmark))


def test_sync_takes_what_the_config_says(manifest: Manifest) -> None:
    path = manifest(grading_mode="mild", agent_server="other", description="Kept")
    path.chmod(0o640)
    report = validate_environment(path, sync=True)
    assert report.synchronized_fields == ["agent_server", "grading_mode"]
    written = yaml.safe_load(path.read_text())
    assert (written["grading_mode"], written["agent_server"], written["description"]) == (
        "strict",
        "simple_agent",
        "Kept",
    )
    assert path.stat().st_mode & 0o777 == 0o640
    assert validate_environment(path).synchronized_fields == []


def test_sync_writes_nothing_when_another_check_fails(manifest: Manifest, write: Write) -> None:
    path = manifest(grading_mode="mild")
    before = path.read_text()
    write("environments/words/data/example.jsonl", "{}\n")
    with pytest.raises(EnvironmentValidationError):
        validate_environment(path, sync=True)
    assert path.read_text() == before


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ("", "holds no rows"),
        (ROW + "[1]\n", "row 2: a row must be an object"),
        (ROW + "{\n", "row 2: not valid JSON"),
        (ROW + '\n{"responses_create_params": {}}\n', "row 3: responses_create_params.input"),
    ],
)
def test_rows_that_cannot_be_run_are_named(manifest: Manifest, write: Write, rows: str, told: str) -> None:
    path = manifest()
    write("environments/words/data/example.jsonl", rows)
    with pytest.raises(EnvironmentValidationError) as raised:
        validate_environment(path)
    assert told in str(raised.value)


def test_example_rows_must_be_there_and_training_rows_may_come_later(manifest: Manifest, write: Write) -> None:
    train = "      - {name: train, type: train, jsonl_fpath: environments/words/data/train.jsonl, license: MIT}\n"
    declared = {"name": "train", "type": "train", "jsonl_fpath": "environments/words/data/train.jsonl"}
    path = manifest(datasets=[*MANIFEST["datasets"], declared])
    config = write("environments/words/config.yaml", CONFIG + train)
    report = validate_environment(path)
    assert [each.rows for each in report.datasets] == [2, None]
    assert "`train` are not there yet" in report.warnings[0]
    config.with_name("data").joinpath("example.jsonl").unlink()
    with pytest.raises(EnvironmentValidationError, match="rows of `example` are missing"):
        validate_environment(path)


BENCHMARK_CONFIG = """
words:
  resources_servers:
    words:
      entrypoint: app.py
      domain: games
      datasets:
      - {name: b, type: benchmark, jsonl_fpath: benchmarks/words/b.jsonl, prepare_script: benchmarks/words/prepare.py,
         prompt_config: benchmarks/words/prompt.yaml}
words_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: words}
      model_server: {type: responses_api_models, name: policy_model}
"""


@pytest.fixture
def benchmark(write: Write) -> Callable[..., Path]:
    """Writes a benchmark `words` that is right, with a manifest that differs in some fields."""

    def described(**changed: object) -> Path:
        write("benchmarks/words/config.yaml", BENCHMARK_CONFIG)
        write("benchmarks/words/prompt.yaml", "user: 'Q: {question}'\n")
        write("benchmarks/words/prepare.py", "def prepare():\n    raise RuntimeError('this is not run')\n")
        write("benchmarks/words/b.jsonl", '{"question": "Why?"}\n')
        dataset = {
            "name": "b",
            "type": "benchmark",
            "jsonl_fpath": "benchmarks/words/b.jsonl",
            "prepare_script": "benchmarks/words/prepare.py",
            "prompt_config": "benchmarks/words/prompt.yaml",
        }
        fields = {
            **MANIFEST,
            "kind": "benchmark",
            "canonical_split": "test",
            "standard_prompt_config": "benchmarks/words/prompt.yaml",
            "datasets": [dataset],
            "grading_mode": None,
            **changed,
        }
        kept = {key: value for key, value in fields.items() if value is not None}
        return write("benchmarks/words/manifest.yaml", yaml.safe_dump(kept))

    return described


def test_a_benchmarks_prompt_is_filled_for_every_row(benchmark: Callable[..., Path], write: Write) -> None:
    path = benchmark()
    assert validate_environment(path).datasets[0].rows == 1
    write("benchmarks/words/b.jsonl", '{"question": "Why?"}\n{"quesion": "Why?"}\n')
    with pytest.raises(EnvironmentValidationError, match=r"row 2: The prompt needs the field `question`"):
        validate_environment(path)
    write("benchmarks/words/b.jsonl", ROW)
    with pytest.raises(EnvironmentValidationError, match="row 1: it has an input of its own"):
        validate_environment(path)


def test_a_benchmark_is_prompted_as_its_standard_says(benchmark: Callable[..., Path], write: Write) -> None:
    write("other.yaml", "user: '{question}'")
    with pytest.raises(EnvironmentValidationError, match=r"standard_prompt_config is other.yaml"):
        validate_environment(benchmark(standard_prompt_config="other.yaml"))


@pytest.mark.parametrize(
    ("script", "told"),
    [("async def prepare(): ...", "no plain function prepare"), ("x = 1", "no plain function"), ("def (", "no valid")],
)
def test_a_script_must_be_one_that_can_prepare(
    benchmark: Callable[..., Path], write: Write, script: str, told: str
) -> None:
    path = benchmark()
    write("benchmarks/words/prepare.py", script)
    with pytest.raises(EnvironmentValidationError, match=told):
        validate_environment(path)


def test_rows_with_prepared_prompts_bring_them(benchmark: Callable[..., Path], write: Write) -> None:
    config = BENCHMARK_CONFIG.replace(",\n         prompt_config: benchmarks/words/prompt.yaml", "")
    dataset = {
        "name": "b",
        "type": "benchmark",
        "jsonl_fpath": "benchmarks/words/b.jsonl",
        "prepare_script": "benchmarks/words/prepare.py",
    }
    path = benchmark(prompt_source="prepared", standard_prompt_config=None, datasets=[dataset])
    write("benchmarks/words/config.yaml", config)
    with pytest.raises(EnvironmentValidationError, match="which prepared prompts must have"):
        validate_environment(path)
    write("benchmarks/words/b.jsonl", ROW)
    assert validate_environment(path).datasets[0].rows == 1


@pytest.mark.parametrize(
    ("body", "inferred"),
    [
        ("pass", "custom-gym-verifier"),
        ("async def responses(self, body):\n        return await super().responses(body)", None),
        ("async def responses(self, body):\n        raise NotImplementedError", "external-agent-loop"),
        ("async def responses(self, body):\n        if body: raise NotImplementedError()\n        return 1", None),
        ("async def responses(self, body):\n        '''Mine.'''\n        return body", "custom-gym-agent-loop"),
        (
            "async def responses(self, body):\n        await super().responses(body)\n        return body",
            "custom-gym-agent-loop",
        ),
        ("async def responses(self, body):\n        if body: return 1\n        raise NotImplementedError", None),
    ],
)
def test_the_profile_is_told_from_the_agents_source(
    manifest: Manifest, write: Write, body: str, inferred: str | None
) -> None:
    path = manifest(agent_server="loop", integration_profile="custom-gym-agent-loop")
    write("environments/words/config.yaml", CONFIG.replace("simple_agent:", "loop:"))
    write("responses_api_agents/loop/app.py", AGENT.format(body=body))
    report = validate_environment(path)
    assert report.inferred_profile == inferred
    assert bool(report.warnings) == (inferred not in (None, "custom-gym-agent-loop"))


def test_a_driver_must_exist(manifest: Manifest, write: Write) -> None:
    driver = "environments.words.driver:run"
    path = manifest(integration_profile="external-rollout-driver", rollout_driver=driver)
    write("environments/words/config.yaml", CONFIG + f"rollout_collection_driver: {driver}\n")
    with pytest.raises(EnvironmentValidationError, match=r"driver.py, which rollout_driver needs"):
        validate_environment(path)
    write("environments/words/driver.py", "async def run(config, global_config): ...\n")
    assert validate_environment(path).inferred_profile == "external-rollout-driver"


def test_whose_data_sets_are_meant_must_be_clear(manifest: Manifest, write: Write) -> None:
    block = "{entrypoint: a, domain: math, datasets: [{name: x, type: example, jsonl_fpath: x.jsonl}]}"
    several = "".join(f"{name}: {{resources_servers: {{words: {block}}}}}\n" for name in ("second", "third"))
    path = manifest()
    write("environments/words/config.yaml", CONFIG + several)
    with pytest.raises(EnvironmentValidationError, match="second, third all declare data sets"):
        validate_environment(path)
    named = manifest(dataset_owner="words_agent")
    write("environments/words/config.yaml", CONFIG + several)
    assert validate_environment(named).datasets[0].name == "example"


def test_a_broken_config_is_told_as_it_is_elsewhere(manifest: Manifest, write: Write) -> None:
    path = manifest()
    write("environments/words/config.yaml", CONFIG.replace("name: words}", "name: gone}"))
    with pytest.raises(ConfigError, match="gone"):
        validate_environment(path)


def test_a_broken_manifest_is_told_first(manifest: Manifest) -> None:
    with pytest.raises(ManifestError):
        validate_environment(manifest(kind="game"))


def test_repeats_are_those_of_the_config(manifest: Manifest, write: Write) -> None:
    path = manifest()
    write("environments/words/config.yaml", CONFIG.replace("example.jsonl}", "example.jsonl, num_repeats: 3}"))
    with pytest.raises(EnvironmentValidationError, match="- datasets: "):
        validate_environment(path)
    assert validate_environment(path, sync=True).synchronized_fields == ["datasets"]
    assert yaml.safe_load(path.read_text())["datasets"][0]["num_repeats"] == 3


def test_data_sets_of_several_agents_are_no_one_environment(manifest: Manifest, write: Write) -> None:
    path = manifest()
    config = yaml.safe_load(CONFIG)
    (dataset,) = config["words_agent"]["responses_api_agents"]["simple_agent"].pop("datasets")
    config["other_agent"] = config["words_agent"]
    pinned = [{**dataset, "name": name, "agent": name} for name in ("words_agent", "other_agent")]
    config["words"]["resources_servers"]["words"]["datasets"] = pinned
    write("environments/words/config.yaml", yaml.safe_dump(config))
    with pytest.raises(EnvironmentValidationError, match=r"go to several agents \(other_agent, words_agent\)"):
        validate_environment(path)
