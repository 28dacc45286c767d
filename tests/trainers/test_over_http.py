"""Trainers that know nothing but HTTP, with servers started by hand: TRL and Unsloth."""

import json
import signal
from pathlib import Path

import pytest

from tests.e2e.harness import ROOT, Workplace, legacy
from tests.trainers.readers import TRL, Unsloth, training_messages
from tests.trainers.vllm import Engine, serving

AGENT = {"type": "responses_api_agents", "name": "example_single_tool_call_simple_agent"}


@pytest.fixture
def bare(tmp_path: Path) -> Workplace:
    return Workplace.bare(tmp_path)


def example_rows(component: str) -> list[dict[str, object]]:
    lines = (ROOT / f"resources_servers/{component}/data/example.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_trl_finds_the_agents_and_trains_on_what_run_answers(bare: Workplace) -> None:
    """The names of commands are those of before `gym`."""
    configs = (
        "resources_servers/example_single_tool_call/configs/example_single_tool_call.yaml",
        "responses_api_models/vllm_model/configs/vllm_model_for_training.yaml",
    )
    model = "+policy_model.responses_api_models.vllm_model"
    with serving(Engine(drift=True)) as base_url:
        policy = [f"+policy_base_url={base_url}", "+policy_api_key=EMPTY", "+policy_model_name=m"]
        head = [
            f"+head_server.port={bare.head_port}",
            f"{model}.uses_reasoning_parser=false",
        ]
        with bare.started(f"+config_paths=[{','.join(configs)}]", *policy, *head, program=legacy("ng_run")) as servers:
            servers.wait_for("servers ready!")
            trl = TRL(f"http://127.0.0.1:{bare.head_port}")
            assert set(trl.agents) == {AGENT["name"]}
            for row in example_rows("example_single_tool_call")[:2]:
                result = trl.run(row | {"agent_ref": AGENT})
                assert result["reward"] == 1.0
                assert len(training_messages(result)) == 2
            assert servers.stop(signal.SIGINT) == 0


def test_unsloth_verifies_without_a_session_an_agent_or_a_model(bare: Workplace) -> None:
    config = "resources_servers/instruction_following/configs/resources_only.yaml"
    head = f"+head_server.port={bare.head_port}"
    with bare.started(f"+config_paths=[{config}]", head, program=legacy("ng_run")) as servers:
        servers.wait_for("servers ready!")
        unsloth = Unsloth(f"http://127.0.0.1:{bare.head_port}", "instruction_following")
        rewards = [unsloth.reward(row, "") for row in example_rows("instruction_following")]
        assert rewards and set(rewards) == {0.0}
        recorded = (ROOT / "resources_servers/instruction_following/data/example_rollouts.jsonl").read_text()
        stored = [json.loads(line) for line in recorded.splitlines()]
        for row, record in zip(example_rows("instruction_following"), stored, strict=True):
            text = record["response"]["output"][-1]["content"][0]["text"]
            assert unsloth.reward(row, text) == record["reward"]
        assert servers.stop(signal.SIGINT) == 0
