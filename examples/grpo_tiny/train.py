"""`python -m examples.grpo_tiny.train` trains a tiny model with GRPO on `mcqa`, with rollouts by NeMo Gym."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig

from examples.grpo_tiny import endpoint, sums
from examples.grpo_tiny.policy import Policy, Rollout
from nemo_gym.cli.env import RunHelper
from nemo_gym.global_config import GlobalConfigDictParserConfig
from nemo_gym.rollout_collection import RolloutCollectionHelper
from nemo_gym.server_utils import HEAD_SERVER_KEY_NAME, BaseServerConfig

CONFIGS = (
    "resources_servers/mcqa/configs/mcqa.yaml",
    "responses_api_models/vllm_model/configs/vllm_model_for_training.yaml",
)
_FIDELITY = 1e-9


class Gym:
    """Rollouts of the policy behind `base_url` on `mcqa`."""

    def __init__(self, base_url: str, head_port: int) -> None:
        self._helper = RunHelper(output=lambda line: None, server_output=None, placement="shared")
        self._collector = RolloutCollectionHelper()
        self._head = BaseServerConfig(host="127.0.0.1", port=head_port)
        self._config = {
            "config_paths": list(CONFIGS),
            "policy_base_url": [base_url],
            "policy_api_key": "dummy_key",
            "policy_model_name": endpoint.NAME,
            HEAD_SERVER_KEY_NAME: {"host": self._head.host, "port": self._head.port},
            "skip_venv_if_present": True,
            "policy_model": {
                "responses_api_models": {
                    "vllm_model": {"uses_reasoning_parser": False, "request_prompt_and_generation_token_ids": True}
                }
            },
        }

    def start(self) -> None:
        self._helper.start(
            global_config_dict_parser_config=GlobalConfigDictParserConfig(
                initial_global_config_dict=DictConfig(self._config),
                skip_load_from_cli=True,
                skip_load_from_dotenv=True,
            )
        )

    def shutdown(self) -> None:
        self._helper.shutdown()

    async def rollouts(self, rows: Sequence[dict[str, Any]]) -> list[Rollout]:
        """One rollout of each row, in the rows' order."""
        found: dict[int, Rollout] = {}
        examples = [row | {"_rowidx": index} for index, row in enumerate(rows)]
        for awaitable in self._collector.run_examples(examples=examples, head_server_config=self._head):
            row, result = await awaitable
            found[row["_rowidx"]] = _rollout(result)
        return [found[index] for index in range(len(rows))]


def _rollout(result: dict[str, Any]) -> Rollout:
    items = [item for item in result["response"]["output"] if item.get("generation_token_ids")]
    if len(items) != 1:
        raise ValueError(f"A question asked once should have one item with tokens, not {len(items)}.")
    item = items[0]
    return Rollout(
        item["prompt_token_ids"], item["generation_token_ids"], item["generation_log_probs"], float(result["reward"])
    )


def train(seed: int, *, steps: int, questions: int, group: int, warm_up: int, head_port: int) -> list[dict[str, float]]:
    """The curve: of each step the mean reward, and how far recomputed log-probabilities lie from those served.

    Raises ValueError when they differ: then what is trained is not what was sampled.
    """
    policy = Policy(seed)
    print(f"seed {seed}: {warm_up} steps make the base model, in a minute or so …", flush=True)
    policy.learn_format(warm_up)
    rng = np.random.default_rng([seed, 1])
    choices = sums.pairs()
    curve = []
    with endpoint.serving(policy) as base_url, _started(Gym(base_url, head_port)) as gym, asyncio.Runner() as runner:
        for step in range(steps):
            asked = [choices[index] for index in rng.integers(len(choices), size=questions)]
            rows = [sums.row(*pair) for pair in asked for _ in range(group)]
            rollouts = runner.run(gym.rollouts(rows))
            reward = sum(rollout.reward for rollout in rollouts) / len(rollouts)
            drift = largest_difference(policy, rollouts)
            if drift > _FIDELITY:
                raise ValueError(f"Log-probabilities differ by {drift:.3g} from those that were served.")
            policy.improve([rollouts[start : start + group] for start in range(0, len(rollouts), group)])
            curve.append({"step": step, "reward": reward, "drift": drift})
            print(f"seed {seed}, step {step:3d}: mean reward {reward:.3f}", flush=True)
    return curve


def largest_difference(policy: Policy, rollouts: Sequence[Rollout]) -> float:
    """Between the log-probabilities that were served and those of the model as it is now."""
    pairs = zip(policy.logprobs(rollouts), rollouts, strict=True)
    return max(float(np.abs(now - np.array(rollout.logprobs)).max()) for now, rollout in pairs)


@contextmanager
def _started(gym: Gym) -> Iterator[Gym]:
    gym.start()
    try:
        yield gym
    finally:
        gym.shutdown()


def rise(curve: Sequence[dict[str, float]], window: int = 5) -> tuple[float, float]:
    """Mean reward of the first and of the last steps."""
    rewards = [point["reward"] for point in curve]
    return float(np.mean(rewards[:window])), float(np.mean(rewards[-window:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=120, help="steps of GRPO (120)")
    parser.add_argument("--questions", type=int, default=16, help="questions per step (16)")
    parser.add_argument("--group", type=int, default=16, help="answers per question (16)")
    parser.add_argument("--warm-up", type=int, default=1500, help="steps that make the base model (1500)")
    parser.add_argument("--head-port", type=int, default=11017)
    parser.add_argument("--output", type=Path, default=Path("results/grpo_tiny.json"))
    options = parser.parse_args()
    sizes = {"steps": options.steps, "questions": options.questions, "group": options.group}
    began, curves = time.monotonic(), {}
    for seed in options.seeds:
        curves[seed] = train(seed, **sizes, warm_up=options.warm_up, head_port=options.head_port)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps({"curves": curves, "seconds": time.monotonic() - began, **sizes}) + "\n")
    rises = [rise(curve) for curve in curves.values()]
    before, after = (float(np.mean([pair[index] for pair in rises])) for index in (0, 1))
    print(f"Mean reward over {len(rises)} seeds: {before:.2f} in the first five steps, {after:.2f} in the last five.")
    print(f"{options.output} holds the curves.")


if __name__ == "__main__":
    main()
