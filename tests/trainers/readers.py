"""What trainers do with the library and its records: calls in their order, the fields they read, what they insist on.

Each reader is the part of a trainer that meets NeMo Gym, written anew from how those behave.
"""

from __future__ import annotations

import asyncio
import copy
import json
import math
import threading
import urllib.request
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

Row = dict[str, Any]
Result = dict[str, Any]


class NemoRL:
    """NeMo RL's environment actor: `spin_up`, then `run_rollouts` any number of times, then `shutdown`."""

    def __init__(self, settings: Mapping[str, Any], dotenv_path: Path | None = None) -> None:
        self._settings, self._dotenv_path = dict(settings), dotenv_path

    def spin_up(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # trainers import these from where they were
            from nemo_gym.cli import GlobalConfigDictParserConfig, RunHelper
        from nemo_gym.rollout_collection import RolloutCollectionHelper
        from nemo_gym.server_utils import HEAD_SERVER_KEY_NAME, BaseServerConfig

        self._rh = RunHelper()
        self._rh.start(
            global_config_dict_parser_config=GlobalConfigDictParserConfig(
                dotenv_path=self._dotenv_path,
                initial_global_config_dict=DictConfig(self._settings),
                skip_load_from_cli=True,
            )
        )
        self._rh.poll()
        head = self._settings[HEAD_SERVER_KEY_NAME]
        self._head = BaseServerConfig(host="127.0.0.1", port=head["port"])
        self._rch = RolloutCollectionHelper()

    def run_rollouts(self, rows: Sequence[Row]) -> list[Result]:
        """Results in the rows' order."""
        return asyncio.run(self.collect(rows))

    async def collect(self, rows: Sequence[Row]) -> list[Result]:
        prepared = [nemo_rl_row(row, index) for index, row in enumerate(rows)]
        completions = self._rch.run_examples(examples=prepared, head_server_config=self._head)
        assert all(row["agent_ref"]["name"] for row in prepared)
        found: dict[int, Result] = {}
        for completion in completions:
            row, result = await completion
            assert any(row is own for own in prepared), "the row that comes back is the caller's own"
            found[row["_rowidx"]] = result
        return [found[index] for index in range(len(rows))]

    def entries(self) -> list[str]:
        """The instances of the resolved config, as newer versions list them."""
        from nemo_gym.global_config import get_global_config_dict

        kinds = ("responses_api_models", "resources_servers", "responses_api_agents", "environment_servers")
        config = get_global_config_dict()
        return [
            str(name) for name, block in config.items() if isinstance(block, DictConfig) and block.keys() & set(kinds)
        ]

    def shutdown(self) -> None:
        self._rh.shutdown()


def nemo_rl_row(row: Row, index: int) -> Row:
    prepared = copy.deepcopy(row)
    params = prepared["responses_create_params"]
    params |= {"temperature": 1.0, "top_p": 1.0, "max_output_tokens": min(params.get("max_output_tokens") or 512, 512)}
    return prepared | {"_rowidx": index, "_ng_task_index": index}


def training_messages(result: Result) -> list[tuple[list[int], list[int], list[float]]]:
    """New prompt ids, generated ids and log-probabilities per model call, as a trainer cuts a rollout.

    Raises ValueError when nothing can be trained, AssertionError when prompts don't continue what came before.
    """
    seen: list[int] = []
    found = []
    for item in result["response"]["output"]:
        generated = item.get("generation_token_ids")
        if not generated:
            continue
        prompt, logprobs = item["prompt_token_ids"], item["generation_log_probs"]
        assert prompt[: len(seen)] == seen, "non-contiguous"
        assert len(logprobs) == len(generated) and not any(map(math.isnan, logprobs))
        found.append((prompt[len(seen) :], generated, logprobs))
        seen = [*prompt, *generated]
    if not found:
        raise ValueError("no trainable item")
    return found


def read_as_nemo_rl(result: Result) -> float:
    """The reward, after everything NeMo RL insists on."""
    reward = result["reward"]
    assert isinstance(reward, float)
    if (parts := result.get("reward_components")) is not None:
        assert math.isclose(sum(parts.values()), reward, rel_tol=1e-5)
    assert result["responses_create_params"]["input"]
    assert not (result.get("instance_config") or {}).get("mask_sample", False)
    training_messages(result)
    for item in result["response"]["output"]:
        if item["type"] == "message":
            assert isinstance(item["content"][0]["text"], str)
    return reward


class Verl:
    """verl's agent loop: all rollouts on one private event loop in a thread, results for whichever loop asks."""

    def __init__(self, gym: NemoRL) -> None:
        self._gym = gym
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    async def generate(self, rows: Sequence[Row]) -> list[Result]:
        future = asyncio.run_coroutine_threadsafe(self._gym.collect(rows), self._loop)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)
        self._loop.close()


def read_as_verl(result: Result) -> tuple[float, list[int], list[int]]:
    """Reward, response ids and their mask (1 for the model's own); a rollout that can't be trained is a dummy of 0."""
    try:
        turns = training_messages(result)
    except (AssertionError, ValueError):
        return 0.0, [], []
    ids, mask = list(turns[0][1]), [1] * len(turns[0][1])
    for prompt, generated, _ in turns[1:]:
        ids += [*prompt, *generated]
        mask += [0] * len(prompt) + [1] * len(generated)
    return result["reward"], ids, mask


class TRL:
    """TRL's script: nothing but HTTP, servers started by hand."""

    def __init__(self, head_url: str) -> None:
        with urllib.request.urlopen(f"{head_url}/global_config_dict_yaml", timeout=30) as reply:
            text = json.load(reply)
        assert isinstance(text, str), "a JSON string with YAML in it"
        config = OmegaConf.create(yaml.safe_load(text))
        assert isinstance(config, DictConfig)
        self.agents: dict[str, str] = {}
        for name, block in config.items():
            for agent in (block.get("responses_api_agents") or {}).values() if isinstance(block, DictConfig) else ():
                self.agents[str(name)] = f"http://{agent.host}:{agent.port}"

    def run(self, row: Row) -> Result:
        params = row["responses_create_params"] | {"max_output_tokens": 256, "temperature": 1.0, "top_p": 1.0}
        body = json.dumps(row | {"responses_create_params": params}).encode()
        url = f"{self.agents[row['agent_ref']['name']]}/run"
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as reply:
            result: Result = json.load(reply)
        assert "error" not in result
        return result


class Unsloth:
    """Unsloth's notebooks: a resources server without agent or model, verified over HTTP, one at a time."""

    def __init__(self, head_url: str, name: str) -> None:
        with urllib.request.urlopen(f"{head_url}/global_config_dict_yaml", timeout=30) as reply:
            config = OmegaConf.create(yaml.safe_load(json.load(reply)))
        assert isinstance(config, DictConfig)
        block = config[name].resources_servers[name]
        self._url = f"http://{block.host}:{block.port}/verify"

    def reward(self, row: Row, answer: str) -> float:
        """Any error counts as 0."""
        message = {
            "type": "message",
            "id": "msg",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": answer, "annotations": []}],
        }
        response = {"id": "resp", "created_at": 0.0, "model": "m", "object": "response", "output": [message]}
        response |= {"parallel_tool_calls": False, "tool_choice": "auto", "tools": []}
        params = {"input": [{"role": "user", "content": row["responses_create_params"]["input"][-1]["content"]}]}
        own = {key: value for key, value in row.items() if value is not None and key != "responses_create_params"}
        body = json.dumps({"responses_create_params": params, "response": response, **own}).encode()
        request = urllib.request.Request(self._url, body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=30) as reply:
                return float(json.load(reply)["reward"])
        except OSError:
            return 0.0


def read_as_megatron(result: Result) -> dict[str, Any]:
    """What Megatron RL's adapter parses, with the epochs its own engine puts on what it generates."""
    items = [item for item in result["response"]["output"] if item.get("generation_token_ids")]
    last = items[-1]
    config = result.get("instance_config") or {}
    return {
        "tokens": [*last["prompt_token_ids"], *last["generation_token_ids"]],
        "logprobs": last["generation_log_probs"],
        "policy_epoch": last["policy_epoch"],
        "kv_cache_epoch": last["kv_cache_epoch"],
        "num_evictions": last["num_evictions"],
        "reward": float(result["reward"]),
        "resolved": result.get("resolved"),
        "mask_sample": config.get("mask_sample", False),
    }
