"""The tree of the container, and the commands its notes show, with no package index and as root and another user."""

import json
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.container.tree import ContainerPlace, Tree
from tests.e2e.harness import ROOT
from tests.mock_provider import MockProvider

PREBUILT = (
    "resources_servers/equivalence_llm_judge",
    "resources_servers/finance_sec_search",
    "resources_servers/format_verification",
    "responses_api_agents/simple_agent",
    "responses_api_agents/finance_agent",
    "responses_api_models/vllm_model",
    "responses_api_models/openai_model",
    "environment_servers/legacy_agent",
    "environment_servers/single_agent_turn",
    "environment_servers/single_agent_turn_legacy",
)
DEVELOPMENT = {"pytest", "mypy", "ruff", "pre_commit", "hypothesis", "coverage"}
FREEFORM = "gym env start --resources-server format_verification/freeform_formatting --model-type vllm_model"

JUDGE = (
    "+search_judge_model_base_url=http://127.0.0.1:9/v1 +search_judge_model_api_key=unset"
    " +search_judge_model_name=unset"
)


def policy(provider: MockProvider) -> str:
    return f"+policy_base_url={provider.base_url} +policy_api_key=EMPTY +policy_model_name=Qwen/Qwen3-4B"


def head(place: ContainerPlace, host: str = "127.0.0.1") -> str:
    return f"+head_server.host={host} +head_server.port={place.head_port}"


def bash(command: str) -> Sequence[str]:
    return ("bash", "-c", f"exec {command}")


def test_every_path_of_the_notes_is_there(tree: Tree) -> None:
    opt = tree.prefix / "opt"
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert (opt / "gym-commit").read_text() == commit
    assert (opt / "chainguard/nemo-gym/gym-commit").read_text() == commit
    for name in ("Gym", "gym-cli-venv", "gym-venvs"):
        assert (opt / "chainguard/nemo-gym" / name).resolve() == (opt / name).resolve()
    assert {str(path.parent.relative_to(tree.venvs)) for path in tree.venvs.glob("*/*/.venv")} >= set(PREBUILT)
    assert tree.gym.readlink() == opt / "gym-cli-venv/bin/gym"
    assert "skip_venv_if_present: true" in (tree.source / "env.yaml").read_text()


def test_tests_recorded_rollouts_and_development_tools_stay_out(tree: Tree) -> None:
    files = [path.relative_to(tree.source) for path in tree.source.rglob("*") if path.is_file()]
    assert len(files) > 500
    assert not [path for path in files if "tests" in path.parts or "example_rollouts.jsonl" in path.name]
    assert any(path.match("resources_servers/mcqa/data/example.jsonl") for path in files)
    installed = {path.name for path in tree.prefix.glob("opt/gym-*venv*/**/site-packages/*")}
    assert "fastapi" in installed and "ray" in installed
    assert not installed & DEVELOPMENT
    assert not list(tree.prefix.rglob("uv/archive-v0"))


@pytest.mark.parametrize("command", ["gym --help", "gym --version", "cd /opt && gym env status"])
def test_light_commands_run_from_the_root_folder(at_root: ContainerPlace, command: str) -> None:
    done = at_root.shell(command)
    assert "Traceback" not in done.stderr
    assert done.returncode == 0, done.stderr


def test_start_and_collection_of_the_notes(in_tree: ContainerPlace, provider: MockProvider) -> None:
    output = in_tree.home / "rollouts.jsonl"
    with in_tree.started(program=bash(f"{FREEFORM} {policy(provider)} {head(in_tree, '0.0.0.0')}")) as servers:
        servers.wait_for("All 3 / 3 servers ready!")
        with urllib.request.urlopen(f"http://127.0.0.1:{in_tree.head_port}/server_instances") as reply:
            assert len(json.load(reply)) >= 3
        collected = in_tree.shell(
            "gym eval run --no-serve +agent_name=freeform_formatting_simple_agent"
            " +input_jsonl_fpath=resources_servers/format_verification/data/example.jsonl"
            f" +output_jsonl_fpath={output} +num_repeats=1 {head(in_tree)}"
        )
        assert collected.returncode == 0, collected.stderr
        assert servers.stop(signal.SIGTERM) == 0
    records = [json.loads(line) for line in output.read_text().splitlines()]
    assert len(records) == 5 and all("response" in record and "reward" in record for record in records)
    assert output.read_bytes().endswith(b"\n")


@pytest.mark.parametrize(
    "environment",
    [
        "--resources-server equivalence_llm_judge",
        f"--resources-server finance_sec_search {JUDGE} +tavily_api_key=null",
        "--resources-server format_verification/freeform_formatting",
    ],
)
def test_the_bake_step_builds_venvs_elsewhere(at_root: ContainerPlace, environment: str) -> None:
    done = at_root.shell(
        f"gym env start {environment} --model-type vllm_model +dry_run=true +uv_venv_dir={at_root.home}/venvs"
        " +skip_venv_if_present=false +policy_base_url=http://127.0.0.1:9/v1 +policy_api_key=unset"
        f" +policy_model_name=unset {head(at_root)}"
    )
    assert done.returncode == 0, done.stderr
    assert list(at_root.home.glob("venvs/resources_servers/*/.venv/bin/python"))


def test_the_serve_step_takes_configs_and_a_judge_from_the_command_line(
    at_root: ContainerPlace, tree: Tree, provider: MockProvider
) -> None:
    judge = "+judge_model.responses_api_models.openai_model"
    policy_model = "+policy_model.responses_api_models.vllm_model"
    command = (
        "gym env start '+config_paths=[resources_servers/equivalence_llm_judge/configs/equivalence_llm_judge.yaml,"
        "responses_api_models/vllm_model/configs/vllm_model.yaml]'"
        f" {policy_model}.base_url={provider.base_url} {policy_model}.api_key=EMPTY {policy_model}.model=M"
        f" {judge}.entrypoint=app.py {judge}.openai_base_url={provider.base_url} {judge}.openai_api_key=EMPTY"
        f" {judge}.openai_model=J"
        " +equivalence_llm_judge.resources_servers.equivalence_llm_judge.judge_model_server.name=judge_model"
        f" {head(at_root)} +port_range_low=20000 +port_range_high=29999"
        f" +skip_venv_if_present=true +uv_venv_dir={tree.venvs}"
    )
    with at_root.started(program=bash(command)) as servers:
        servers.wait_for("servers ready!")
        with urllib.request.urlopen(f"http://127.0.0.1:{at_root.head_port}/server_instances") as reply:
            names = {instance["process_name"] for instance in json.load(reply)}
        assert {"equivalence_llm_judge", "judge_model", "policy_model"} <= names
        assert servers.stop(signal.SIGINT) == 0


def test_the_wrappers_entry_is_the_command(at_root: ContainerPlace, tree: Tree) -> None:
    done = at_root.shell(f"{tree.python} -c 'from nemo_gym.cli.main import main; main()' --version")
    assert done.returncode == 0 and done.stdout == at_root.shell("gym --version").stdout


def test_a_component_that_needs_nothing_more_is_built_on_demand(in_tree: ContainerPlace, tree: Tree) -> None:
    command = f"gym env start --resources-server blackjack --model-type vllm_model +dry_run=true {head(in_tree)}"
    done = in_tree.shell(f"{command} +policy_base_url=http://127.0.0.1:9/v1 +policy_api_key=EMPTY +policy_model_name=M")
    assert done.returncode == 0, done.stderr
    made = tree.venvs / "resources_servers/blackjack"
    assert (made / ".venv/bin/python").exists()
    shutil.rmtree(made)  # the next user makes it too


def test_a_component_with_packages_of_its_own_is_refused_by_name_without_an_index(
    in_tree: ContainerPlace, tmp_path: Path
) -> None:
    component = in_tree.home / "roots/resources_servers/needy"
    (component / "configs").mkdir(parents=True)
    (component / "app.py").write_text("import surely_not_installed\n")
    (component / "requirements.txt").write_text("-e nemo-gym[dev] @ ../../\nsurely-not-installed==1.0\n")
    block = {"needy": {"resources_servers": {"needy": {"entrypoint": "app.py", "domain": "other"}}}}
    (component / "configs/needy.yaml").write_text(json.dumps(block))
    done = in_tree.shell(
        f"gym env start --resources-server needy --search-dir {in_tree.home}/roots +dry_run=true {head(in_tree)}"
    )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "resources_servers/needy" in done.stderr, done.stderr
    assert "surely-not-installed" in done.stderr, done.stderr


def test_sizes_are_told_of_every_part(tree: Tree) -> None:
    done = subprocess.run([ROOT / "docker/report_sizes.sh", tree.prefix], capture_output=True, text=True, check=True)
    told = {line.rsplit(maxsplit=2)[0] for line in done.stdout.splitlines()}
    assert {"source tree", "CLI venv", "all of it", *PREBUILT} <= told
