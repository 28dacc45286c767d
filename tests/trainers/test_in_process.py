"""Trainers that import the library: NeMo RL, verl, Megatron RL."""

import asyncio
import json
import pickle
from typing import Any

import pytest

from tests.e2e.harness import ROOT, question
from tests.trainers.conftest import PORTS, Started, Trainer
from tests.trainers.readers import Verl, read_as_megatron, read_as_nemo_rl, read_as_verl, training_messages
from tests.trainers.vllm import END, Engine


def weather_rows(count: int = 1) -> list[dict[str, Any]]:
    lines = (ROOT / "resources_servers/example_single_tool_call/data/example.jsonl").read_text().splitlines()
    agent = {"type": "responses_api_agents", "name": "example_single_tool_call_simple_agent"}
    return [json.loads(lines[index % len(lines)]) | {"agent_ref": agent} for index in range(count)]


def choice_rows(count: int) -> list[dict[str, Any]]:
    agent = {"type": "responses_api_agents", "name": "mcqa_simple_agent"}
    return [question(index) | {"agent_ref": agent} for index in range(count)]


def test_turns_continue_the_true_tokens_of_earlier_ones(trainer: Trainer) -> None:
    """With drift only the ids that were sent back can make the second prompt continue the first answer."""
    engine = trainer.engine
    (result,) = trainer.gym.run_rollouts(weather_rows())
    assert read_as_nemo_rl(result) == 1.0
    turns = training_messages(result)
    assert len(turns) == 2
    told = engine.decode(turns[1][0])
    assert told.startswith("<|tool|>") and told.endswith("<|assistant|>")
    assert engine.decode(turns[0][1]) == 'I look it up.<call>get_weather {"city": "Oslo"}</call>' + END
    second = engine.requests[-1]["messages"][-2]
    assert second["generation_token_ids"] == turns[0][1]
    assert second["generation_log_probs"] == turns[0][2]
    assert all(request["top_logprobs"] == 0 and request["logprobs"] is True for request in engine.requests)


def test_one_bundle_per_model_call_on_its_last_item(trainer: Trainer) -> None:
    (result,) = trainer.gym.run_rollouts(weather_rows())
    types = [(item["type"], "generation_token_ids" in item) for item in result["response"]["output"]]
    assert types == [
        ("message", False),
        ("function_call", True),
        ("function_call_output", False),
        ("message", True),
    ]


def test_rows_of_two_environments_and_the_row_s_own_fields(trainer: Trainer) -> None:
    rows = [*choice_rows(3), *weather_rows(2)]
    results = trainer.gym.run_rollouts(rows)
    assert [read_as_nemo_rl(result) for result in results] == [1.0] * 5
    assert [result["expected_answer"] for result in results[:3]] == ["A"] * 3
    names = trainer.gym.entries()
    assert {"mcqa", "policy_model", "mcqa_simple_agent", "mcqa_environment_server"} <= set(names)


def test_every_engine_of_a_list_is_used_and_a_rollout_stays_with_one(started: Started) -> None:
    engines = Engine(), Engine()
    gym = started(*engines)
    gym.run_rollouts(weather_rows(16))
    assert all(engine.requests for engine in engines)
    for engine in engines:
        second = [request for request in engine.requests if request["messages"][-1]["role"] == "tool"]
        assert len(second) * 2 == len(engine.requests)


def test_servers_listen_where_the_trainer_says(trainer: Trainer) -> None:
    gym = trainer.gym
    ports = []
    for display in gym._rh._server_instance_display_configs:
        host, _, port = str(display.url).removeprefix("http://").partition(":")
        assert host == "127.0.0.1"
        ports.append(int(port))
    assert ports and all(PORTS[0] <= port <= PORTS[1] for port in ports)
    assert gym._rh._server_client.head_server_config.port


def test_a_failure_is_an_exception_with_a_status_that_can_be_pickled(started: Started) -> None:
    gym = started(Engine(fault=400))
    with pytest.raises(Exception) as caught:
        gym.run_rollouts(choice_rows(1))
    copied = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(copied.status, int) and copied.status >= 400
    assert copied.response_content == caught.value.response_content  # type: ignore[attr-defined]


def test_verl_reads_responses_and_masks_from_a_loop_of_its_own(trainer: Trainer) -> None:
    gym = trainer.gym
    verl = Verl(gym)
    try:

        async def several() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
            return await asyncio.gather(verl.generate(weather_rows(2)), gym.collect(choice_rows(2)))

        there, here = asyncio.run(several())
        again = asyncio.run(verl.generate(choice_rows(1)))
    finally:
        verl.close()
    reward, ids, mask = read_as_verl(there[0])
    assert reward == 1.0 and len(ids) == len(mask) and {0, 1} == set(mask)
    assert all(read_as_verl(result)[1] for result in [*here, *again])
    assert read_as_verl({"reward": 1.0, "response": {"output": []}}) == (0.0, [], [])


def test_megatron_finds_the_fields_of_its_engine(started: Started) -> None:
    epochs = {"policy_epoch": [3, 3], "kv_cache_epoch": [2], "num_evictions": 1}
    gym = started(Engine(extras=epochs))
    read = read_as_megatron(gym.run_rollouts(weather_rows())[0])
    assert {name: read[name] for name in epochs} == epochs
    assert read["reward"] == 1.0 and read["mask_sample"] is False
    assert len(read["logprobs"]) < len(read["tokens"])


def test_a_dry_run_returns_when_everything_is_built(started: Started) -> None:
    gym = started(Engine(), dry_run=True)
    gym._rh.poll()
    assert gym._rh._server_instance_display_configs == []
