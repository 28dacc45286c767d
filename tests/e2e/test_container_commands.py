"""The commands that containers and pipelines run: raw overrides only, prebuilt venvs, legacy names."""

import json
import signal
from pathlib import Path
from shlex import split

import pytest

from tests.e2e.harness import Workplace, legacy, question
from tests.mock_provider import MockProvider

MCQA = split("env start --resources-server mcqa --model-type openai_model")
FREEFORM = split("env start --resources-server format_verification/freeform_formatting --model-type vllm_model")
COLLECT = split("eval run --no-serve")
READY = "All 3 / 3 servers ready!"


def policy(provider: MockProvider) -> list[str]:
    return [f"+policy_base_url={provider.base_url}", "+policy_api_key=EMPTY", "+policy_model_name=Qwen/Qwen3-4B"]


@pytest.fixture
def bare(tmp_path: Path) -> Workplace:
    return Workplace.bare(tmp_path)


def head(place: Workplace, host: str = "127.0.0.1") -> list[str]:
    return [f"+head_server.host={host}", f"+head_server.port={place.head_port}"]


def test_start_and_collection_as_in_the_container_notes(bare: Workplace, provider: MockProvider) -> None:
    with bare.started(*FREEFORM, *policy(provider), *head(bare, "0.0.0.0")) as servers:
        servers.wait_for(READY)
        example = "resources_servers/format_verification/data/example.jsonl"
        rows = ["+agent_name=freeform_formatting_simple_agent", f"+input_jsonl_fpath={example}"]
        output = ["+output_jsonl_fpath=rollouts.jsonl-async", "+num_repeats=1"]
        ended = bare.gym(*COLLECT, *rows, *output, *head(bare))
        assert ended.code == 0, ended.err
        assert servers.stop(signal.SIGTERM) == 0
    records = bare.read_rows("rollouts.jsonl-async")
    assert records and all("response" in record and "reward" in record for record in records)
    assert (bare.folder / "rollouts_materialized_inputs.jsonl").exists()


def test_a_dry_run_builds_venvs_that_later_starts_reuse(bare: Workplace, provider: MockProvider) -> None:
    command = [*FREEFORM, "+dry_run=true", f"+uv_venv_dir={bare.folder / 'venvs'}", *policy(provider)]
    built = bare.gym(*command, "+skip_venv_if_present=false")
    assert built.code == 0, built.err
    assert {str(path.relative_to(bare.folder)) for path in bare.folder.glob("venvs/*/*/.venv")} == {
        "venvs/resources_servers/format_verification/.venv",
        "venvs/responses_api_agents/simple_agent/.venv",
        "venvs/responses_api_models/vllm_model/.venv",
    }
    again = bare.gym(*command, "+skip_venv_if_present=true", UV_OFFLINE="1", PATH="/bin")
    assert again.code == 0, again.err
    assert "Install" not in again.out


def test_prefetch_builds_venvs_and_starts_nothing(bare: Workplace, provider: MockProvider) -> None:
    chosen = split("env prefetch --resources-server mcqa --model-type openai_model")
    ended = bare.gym(*chosen, f"+uv_venv_dir={bare.folder / 'venvs'}", *policy(provider))
    assert ended.code == 0, ended.err
    assert len(list(bare.folder.glob("venvs/*/*/.venv/bin/python"))) == 3
    assert "complete" in ended.out


def test_legacy_names_start_and_collect(bare: Workplace, provider: MockProvider) -> None:
    configs = "resources_servers/mcqa/configs/mcqa.yaml,responses_api_models/openai_model/configs/openai_model.yaml"
    bare.write_rows("in put.jsonl", [question(0)])
    start = [f"+config_paths=[{configs}]", *policy(provider), *head(bare), "+port_range_low=11024"]
    collect = ["+input_jsonl_fpath='in put.jsonl'", "+output_jsonl_fpath=r.jsonl", "+agent_name=mcqa_simple_agent"]
    with bare.started(*start, program=legacy("ng_run")) as servers:
        servers.wait_for(READY)
        assert "gym env start" in servers.text
        done = bare.gym(
            *collect, "+num_samples_in_parallel=2", *head(bare), program=legacy("nemo_gym_collect_rollouts")
        )
        assert done.code == 0, done.err
        assert "gym eval run --no-serve" in done.err
        assert len(json.loads(bare.gym("--json", *head(bare), program=legacy("ng_status")).out)) == 3
        again = bare.gym(*collect, "+resume_from_cache=true", *head(bare), program=legacy("ng_collect_rollouts"))
        assert again.code == 0, again.err
    assert len(bare.read_rows("r.jsonl")) == 1


def test_a_collection_waits_for_servers_that_still_start(bare: Workplace, provider: MockProvider) -> None:
    bare.write_rows("rows.jsonl", [question(0)])
    with bare.started(*MCQA, *policy(provider), *head(bare)) as servers:
        servers.wait_for("[1] mcqa")
        ended = bare.gym(*COLLECT, "-i", "rows.jsonl", "-o", "r.jsonl", *head(bare))
    assert ended.code == 0, ended.err


def test_a_whole_server_is_added_by_overrides(bare: Workplace, provider: MockProvider) -> None:
    judge = "+judge_model.responses_api_models.openai_model"
    added = [
        f"{judge}.entrypoint=app.py",
        f"{judge}.openai_base_url={provider.base_url}",
        f"{judge}.openai_api_key=EMPTY",
        f"{judge}.openai_model=judge",
    ]
    ended = bare.gym(*MCQA, *policy(provider), *added, "+dry_run=true")
    assert ended.code == 0, ended.err
    assert "[4] judge_model (responses_api_models/openai_model)" in ended.out


def test_json_versions_by_the_legacy_name(bare: Workplace) -> None:
    assert json.loads(bare.gym("+json=true", program=legacy("ng_version")).out)["nemo_gym"].startswith("0.7.0")
