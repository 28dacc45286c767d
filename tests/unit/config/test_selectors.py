"""Names on the command line."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nemo_gym.config.catalog import benchmark_names
from nemo_gym.config.selectors import SelectorError, resolve_selector
from nemo_gym.errors import UsageError

Write = Callable[[str, str], Path]
BENCHMARK = "a: {responses_api_agents: {s: {datasets: [{name: x, type: benchmark}]}}}"


@pytest.fixture(autouse=True)
def components(write: Write) -> None:
    for name in (
        "resources_servers/mcqa/configs/mcqa.yaml",
        "resources_servers/format_verification/configs/citation_format.yaml",
        "resources_servers/format_verification/configs/freeform_formatting.yaml",
        "responses_api_models/openai_model/configs/openai_model.yaml",
        "responses_api_agents/simple_agent/configs/simple_agent.yaml",
        "environments/wordle/config.yaml",
        "environments/wordle/config_hard.yaml",
        "environments/group/inner/config.yaml",
        "environments/langgraph_rewoo_reasoning_gym/config.yaml",
    ):
        write(name, "x: 1")
    write("benchmarks/gpqa/config.yaml", BENCHMARK)
    write("benchmarks/gpqa/diamond.yaml", BENCHMARK)
    write("benchmarks/gpqa/manifest.yaml", BENCHMARK)
    write("benchmarks/livecodebench/v5_2024/config.yaml", BENCHMARK)
    write("benchmarks/livecodebench/v5/config.yaml", BENCHMARK)
    write("benchmarks/suite/config.yaml", f"{BENCHMARK}\nb: {{x: {{datasets: [{{type: benchmark}}]}}}}")


@pytest.mark.parametrize(
    ("flag", "value", "path"),
    [
        ("--resources-server", "mcqa", "resources_servers/mcqa/configs/mcqa.yaml"),
        ("--resources-server", "resources_servers/mcqa", "resources_servers/mcqa/configs/mcqa.yaml"),
        (
            "--resources-server",
            "format_verification/freeform_formatting",
            "resources_servers/format_verification/configs/freeform_formatting.yaml",
        ),
        ("--model-type", "openai_model", "responses_api_models/openai_model/configs/openai_model.yaml"),
        ("--agent-type", "simple_agent", "responses_api_agents/simple_agent/configs/simple_agent.yaml"),
        ("--environment", "wordle", "environments/wordle/config.yaml"),
        ("--environment", "wordle/config_hard", "environments/wordle/config_hard.yaml"),
        ("--environment", "group/inner", "environments/group/inner/config.yaml"),
        ("--benchmark", "gpqa", "benchmarks/gpqa/config.yaml"),
        ("--benchmark", "gpqa/diamond", "benchmarks/gpqa/diamond.yaml"),
        ("--benchmark", "livecodebench/v5", "benchmarks/livecodebench/v5/config.yaml"),
    ],
)
def test_names_mean_files(project: Path, flag: str, value: str, path: str) -> None:
    assert resolve_selector(flag, value) == project / path


def test_the_first_root_wins_and_the_others_are_named(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = tmp_path / "extra"
    shadowing = extra / "resources_servers/mcqa/configs/mcqa.yaml"
    shadowing.parent.mkdir(parents=True)
    shadowing.write_text("x: 2")
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(extra))
    assert resolve_selector("--resources-server", "mcqa") == shadowing
    err = capsys.readouterr().err
    assert f"means {shadowing}, which hides {project / 'resources_servers/mcqa/configs/mcqa.yaml'}" in err
    assert "--config" in err


def test_one_file_through_two_roots_hides_nothing(
    tmp_path: Path, project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(project)
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(tmp_path / "link"))
    assert resolve_selector("--benchmark", "gpqa").is_file()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("flag", "value", "suggestion"),
    [
        ("--resources-server", "mcqq", "mcqa"),
        ("--resources-server", "format_verification/freeform_formating", "format_verification/freeform_formatting"),
        ("--resources-server", "format_verificaton/citation_format", "format_verification/citation_format"),
        ("--model-type", "openai_mdoel", "openai_model"),
        ("--agent-type", "simple_agnet", "simple_agent"),
        ("--environment", "worlde", "wordle"),
        ("--environment", "wordle/config_hrad", "wordle/config_hard"),
        ("--benchmark", "gqpa", "gpqa"),
        ("--benchmark", "livecodebench", "livecodebench/v5"),
    ],
)
def test_a_wrong_name_gets_a_suggestion(flag: str, value: str, suggestion: str) -> None:
    with pytest.raises(SelectorError) as caught:
        resolve_selector(flag, value)
    assert f"Did you mean `{flag} {suggestion}`?" in str(caught.value)


@pytest.mark.parametrize(
    ("flag", "value", "meant"),
    [
        ("--environment", "mcqa", "--resources-server mcqa"),
        ("--environment", "resources_servers/mcqa", "--resources-server mcqa"),
        ("--resources-server", "wordle", "--environment wordle"),
        ("--model-type", "gpqa/diamond", "--benchmark gpqa/diamond"),
    ],
)
def test_a_name_of_another_kind_gets_its_flag(flag: str, value: str, meant: str) -> None:
    with pytest.raises(SelectorError) as caught:
        resolve_selector(flag, value)
    assert f"Did you mean `{meant}`?" in str(caught.value)


def test_a_name_without_a_default_flavor_gets_its_flavors() -> None:
    with pytest.raises(SelectorError) as caught:
        resolve_selector("--resources-server", "format_verification")
    flag = "--resources-server format_verification"
    assert f"Did you mean `{flag}/citation_format` or `{flag}/freeform_formatting`?" in str(caught.value)


def test_a_wrong_name_is_a_usage_error_that_names_file_and_places(project: Path) -> None:
    with pytest.raises(UsageError) as caught:
        resolve_selector("--resources-server", "zzz")
    assert str(caught.value) == (
        "--resources-server zzz: there is no resources_servers/zzz/configs/zzz.yaml. "
        f"Configs of this kind are in {project / 'resources_servers'}."
    )
    assert isinstance(caught.value, ValueError)
    assert caught.value.exit_code == 2


def test_a_file_belongs_to_another_flag() -> None:
    with pytest.raises(SelectorError, match="with --config"):
        resolve_selector("--benchmark", "benchmarks/gpqa/config.yaml")


def test_no_component_of_a_kind_at_all(project: Path) -> None:
    (project / "responses_api_agents/simple_agent/configs/simple_agent.yaml").unlink()
    (project / "responses_api_agents/simple_agent/configs").rmdir()
    (project / "responses_api_agents/simple_agent").rmdir()
    (project / "responses_api_agents").rmdir()
    with pytest.raises(SelectorError, match="There is no responses_api_agents folder"):
        resolve_selector("--agent-type", "x")


def test_an_older_name_of_an_environment(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = resolve_selector("--environment", "reasoning_gym_rewoo")
    assert found == project / "environments/langgraph_rewoo_reasoning_gym/config.yaml"
    assert "now called `langgraph_rewoo_reasoning_gym`" in capsys.readouterr().err


def test_an_older_flavor_of_an_agent(write: Write, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write("responses_api_agents/tau2/configs/tau2.yaml", "x: 1")
    found = resolve_selector("--agent-type", "tau2/tau2_agent")
    assert found == project / "responses_api_agents/tau2/configs/tau2.yaml"
    assert "is now responses_api_agents/tau2/configs/tau2.yaml" in capsys.readouterr().err


def test_benchmarks_are_what_declares_one_benchmark(project: Path) -> None:
    (project / "benchmarks/broken.yaml").write_text("a: [")
    (project / "benchmarks/gone").mkdir()
    (project / "benchmarks/gone/config.yaml").write_text(BENCHMARK)
    (project / "benchmarks/gone/.nemo_gym_tombstone").write_text("gpqa")
    assert benchmark_names() == ["gpqa", "gpqa/diamond", "livecodebench/v5", "livecodebench/v5_2024"]


SERVER = "s: {resources_servers: {quiz: {entrypoint: app.py, domain: math}}}\n"


def test_the_only_config_of_a_component_is_what_its_bare_name_means(
    write: Callable[[str, str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Spec 50, Do better: a single flavour is chosen, with a notice; helpers without a server are none."""
    only = write("resources_servers/quiz/configs/hard.yaml", SERVER)
    write("resources_servers/quiz/configs/judge_model.yaml", "m: {responses_api_models: {m: {entrypoint: app.py}}}\n")
    assert resolve_selector("--resources-server", "quiz") == only
    assert "--resources-server quiz means quiz/hard, its only config" in capsys.readouterr().err
    assert resolve_selector("--resources-server", "quiz/hard") == only
    assert capsys.readouterr().err == ""
    other = write("environments/words/config_remote.yaml", SERVER)
    write("environments/words/manifest.yaml", "name: words")
    assert resolve_selector("--environment", "words") == other


def test_several_flavours_are_listed_and_none_is_chosen(write: Callable[[str, str], Path]) -> None:
    write("resources_servers/quiz/configs/hard.yaml", SERVER)
    write("resources_servers/quiz/configs/mild.yaml", SERVER)
    write("resources_servers/quiz/configs/judge_model.yaml", "m: {responses_api_models: {m: {entrypoint: app.py}}}\n")
    with pytest.raises(SelectorError) as raised:
        resolve_selector("--resources-server", "quiz")
    told = str(raised.value)
    assert "`--resources-server quiz/hard` or `--resources-server quiz/mild`" in told and "judge_model" not in told
