"""The training example: its gradient, its endpoint, and that what is trained is what was sampled."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest

from examples.grpo_tiny import endpoint, sums
from examples.grpo_tiny.policy import Policy, Rollout, advantages
from examples.grpo_tiny.train import largest_difference, rise
from examples.grpo_tiny.transformer import Transformer, softmax
from tests.ports import free_port

ROOT = Path(__file__).parents[3]


def test_the_gradient_is_that_of_finite_differences() -> None:
    model = Transformer(7, context=6, width=8, layers=2, heads=2, seed=3)
    rng = np.random.default_rng(0)
    ids, weights = rng.integers(7, size=(3, 5)), rng.standard_normal((3, 5, 7))

    def loss() -> float:
        return float((model.logits(ids) * weights).sum())

    _, kept = model.forward(ids)
    gradients = model.backward(weights, kept)
    for name, values in model.weights.items():
        for place in [tuple(rng.integers(size) for size in values.shape) for _ in range(5)]:
            before = values[place]
            values[place] = before + 1e-5
            above = loss()
            values[place] = before - 1e-5
            slope = (above - loss()) / 2e-5
            values[place] = before
            assert gradients[name][place] == pytest.approx(slope, rel=1e-4, abs=1e-6), (name, place)


def test_a_token_does_not_see_what_follows() -> None:
    model = Transformer(7, context=6, seed=1)
    one, other = np.array([[1, 2, 3, 4]]), np.array([[1, 2, 3, 5]])
    assert np.array_equal(model.logits(one)[:, :3], model.logits(other)[:, :3])


def test_samples_carry_the_models_own_log_probabilities_up_to_the_end_of_the_answer() -> None:
    policy = Policy(0)
    prompt = sums.render([{"role": "user", "content": sums.question(2, 3)}])
    for sample in policy.sample([prompt] * 8, 6):
        rollout = Rollout(prompt, sample.ids, sample.logprobs, 0.0)
        assert largest_difference(policy, [rollout]) < 1e-12
        assert sample.ended == (sums.WORDS[sample.ids[-1]] == sums.END)
        assert sums.encode([sums.END])[0] not in sample.ids[:-1]


def test_a_step_makes_the_rewarded_answer_likelier_and_changes_nothing_where_all_are_alike() -> None:
    policy = Policy(0)
    prompt = sums.render([{"role": "user", "content": sums.question(2, 3)}])
    answers = [sums.encode(["\\boxed{", letter, "}", sums.END]) for letter in sums.LETTERS]
    group = [Rollout(prompt, answer, [0.0] * 4, float(answer == answers[2])) for answer in answers]
    before = [values.sum() for values in policy.logprobs(group)]
    policy.improve([[replace(rollout, reward=1.0) for rollout in group]])
    assert [values.sum() for values in policy.logprobs(group)] == before
    for _ in range(3):
        policy.improve([group])
    assert policy.logprobs(group)[2].sum() > before[2]


def test_advantages_are_deviations_from_the_mean_of_the_group() -> None:
    assert advantages([1.0, 0.0]) == pytest.approx([1.0, -1.0], abs=1e-3)
    assert advantages([1.0, 1.0]).tolist() == [0.0, 0.0]


def test_the_endpoint_tells_tokens_as_vllm_does() -> None:
    policy = Policy(0)
    policy.learn_format(60)
    messages = [{"role": "user", "content": sums.question(4, 4)}]
    asked = {"messages": messages, "max_tokens": 6, "logprobs": True, "return_token_ids": True}
    with endpoint.serving(policy) as base_url, httpx.Client() as client:
        answer = client.post(f"{base_url}/chat/completions", json=asked).json()
        unknown = client.post(f"{base_url}/chat/completions", json={"messages": [{"role": "user", "content": "Hi"}]})
        tokens = client.post(f"{base_url.removesuffix('/v1')}/tokenize", json={"messages": messages}).json()
    choice = answer["choices"][0]
    logprobs = [entry["logprob"] for entry in choice["logprobs"]["content"]]
    assert [entry["token"] for entry in choice["logprobs"]["content"]] == [f"token_id:{i}" for i in choice["token_ids"]]
    assert answer["prompt_token_ids"] == tokens["tokens"] == sums.render(messages)
    assert choice["message"]["content"] == sums.decode(choice["token_ids"])
    assert largest_difference(policy, [Rollout(tokens["tokens"], choice["token_ids"], logprobs, 0.0)]) < 1e-12
    assert unknown.status_code == 400 and "'Hi'" in unknown.json()["error"]["message"]


def test_every_question_has_its_answer_among_the_options() -> None:
    for first, second in sums.pairs():
        row = sums.row(first, second)
        options = {letter: text for option in row["options"] for letter, text in option.items()}
        assert options[row["expected_answer"]] == str(first + second)


def test_the_rise_compares_the_first_steps_with_the_last() -> None:
    curve = [{"step": float(step), "reward": float(step >= 5)} for step in range(10)]
    assert rise(curve) == (0.0, 1.0)


def test_softmax_bears_large_scores() -> None:
    assert softmax(np.array([[1000.0, 1000.0]])).tolist() == [[0.5, 0.5]]


def test_a_short_training_trains_what_it_sampled(tmp_path: Path) -> None:
    output = tmp_path / "curves.json"
    sizes = ["--seeds", "0", "--steps", "2", "--questions", "3", "--group", "4", "--warm-up", "40"]
    command = [sys.executable, "-m", "examples.grpo_tiny.train", *sizes]
    ended = subprocess.run(
        [*command, "--head-port", str(free_port()), "--output", str(output)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    curve = json.loads(output.read_text())["curves"]["0"]
    assert [point["step"] for point in curve] == [0, 1]
    assert all(0.0 <= point["reward"] <= 1.0 and point["drift"] < 1e-9 for point in curve)
