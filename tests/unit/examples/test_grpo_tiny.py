"""The training example: its gradient, its endpoint, and that what is trained is what was sampled."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest

from examples.grpo_tiny import endpoint, sums, train
from examples.grpo_tiny.policy import Policy, Rollout, Sample, advantages
from examples.grpo_tiny.train import Gym, largest_difference, rise
from examples.grpo_tiny.transformer import Adam, Transformer, softmax
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


def trained_with(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> list[list[list[tuple[int, float]]]]:
    """Of each step to come the tokens that count, with their weights, row by row; nothing is learnt of them."""
    seen: list[list[list[tuple[int, float]]]] = []

    def gradients(tokens: np.ndarray, weights: np.ndarray) -> dict[str, np.ndarray]:
        rows = zip(tokens[:, 1:].tolist(), weights.tolist(), strict=True)
        seen.append([[(i, w) for i, w in zip(ids, own, strict=True) if w] for ids, own in rows])
        return {name: np.zeros_like(value) for name, value in policy.model.weights.items()}

    monkeypatch.setattr(policy, "_gradients", gradients)
    return seen


def test_generated_tokens_count_each_with_its_own_groups_advantage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts, what shorter rows are filled up with and other groups' rewards count for nothing."""
    policy = Policy(0)
    seen = trained_with(policy, monkeypatch)
    groups = [
        [Rollout([3, 4, 5], [6, 7, 8], [0.0] * 3, 1.0), Rollout([3, 4, 5], [9], [0.0], 0.0)],
        [Rollout([3, 4], [6, 7], [0.0] * 2, 0.5), Rollout([3, 4], [8, 7], [0.0] * 2, 0.0)],
    ]
    policy.improve(groups)
    more, less = pytest.approx(1 / 8, abs=1e-3), pytest.approx(-1 / 8, abs=1e-3)
    answers: list[Any] = [
        [(6, more), (7, more), (8, more)],
        [(9, less)],
        [(6, more), (7, more)],
        [(8, less), (7, less)],
    ]
    assert seen == [answers]


def test_the_base_model_learns_whole_answers_and_no_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = Policy(0)
    seen = trained_with(policy, monkeypatch)
    policy.learn_format(1, batch=3)
    letters = sums.encode(sums.LETTERS)
    for row in seen[0]:
        box, letter, closing, end = (i for i, _ in row)
        assert [box, closing, end] == sums.encode(["\\boxed{", "}", sums.END]) and letter in letters
        assert {weight for _, weight in row} == {1 / 12}


def test_samples_are_as_frequent_as_they_are_likely() -> None:
    policy = Policy(0)
    prompt = sums.render([{"role": "user", "content": sums.question(2, 3)}])
    chances = softmax(policy.model.logits(np.array([prompt]))[0, -1])
    first = [sample.ids[0] for sample in policy.sample([prompt] * 1000, 1)]
    assert np.abs(np.bincount(first, minlength=len(chances)) / 1000 - chances).max() < 0.05


def test_an_answer_ends_where_the_context_does() -> None:
    policy = Policy(0)
    (sample,) = policy.sample([[3] * (policy.model.context - 2)], 50)
    assert 1 <= len(sample.ids) <= 2


def test_demonstrations_are_right_but_for_the_guessed_share() -> None:
    rng = np.random.default_rng(0)
    right = {
        tuple(sums.render([{"role": "user", "content": sums.question(*p)}])): sums.answer(*p) for p in sums.pairs()
    }

    def share(guessed: float) -> float:
        shown = sums.demonstrations(rng, 200, guessed=guessed)
        return sum(right[tuple(ids[:-4])] == sums.WORDS[ids[-3]] for ids in shown) / len(shown)

    assert share(0.0) == 1.0
    assert share(0.2) > 0.75
    assert share(1.0) < 0.5


def test_adam_corrects_its_averages_and_clips_gradients() -> None:
    """The first gradient counts as (0.6, -0.8): it is cut to a length of 1."""
    weights = {"a": np.zeros(2)}
    adam = Adam(weights, 0.1)
    adam.step({"a": np.array([300.0, -400.0])})
    assert weights["a"] == pytest.approx([-0.1, 0.1])
    adam.step({"a": np.array([0.3, 0.4])})
    mean = (0.9 * 0.1 * 0.6 + 0.1 * 0.3) / (1 - 0.9**2)
    square = (0.99 * 0.01 * 0.6**2 + 0.01 * 0.3**2) / (1 - 0.99**2)
    assert weights["a"][0] == pytest.approx(-0.1 - 0.1 * mean / square**0.5)


@pytest.mark.parametrize(("asked", "most"), [({}, 8), ({"max_tokens": 3}, 3)])
@pytest.mark.parametrize(("ended", "reason"), [(True, "stop"), (False, "length")])
def test_the_endpoint_asks_for_so_many_tokens_and_says_why_it_stopped(
    asked: dict[str, int], most: int, ended: bool, reason: str
) -> None:
    told = []

    def sample(prompts: Sequence[list[int]], most: int) -> list[Sample]:
        told.append(most)
        return [Sample([6, 7], [-0.5, -0.25], ended) for _ in prompts]

    policy: Any = SimpleNamespace(sample=sample)
    body = {"messages": [{"role": "user", "content": sums.question(1, 4)}], **asked}
    with endpoint.serving(policy) as base_url, httpx.Client() as client:
        answer = client.post(f"{base_url}/chat/completions", json=body).json()
    prompt = len(sums.render([{"role": "user", "content": sums.question(1, 4)}]))
    choice = answer["choices"][0]
    assert (told, choice["finish_reason"]) == ([most], reason)
    assert answer["usage"] == {"prompt_tokens": prompt, "completion_tokens": 2, "total_tokens": prompt + 2}
    assert choice["logprobs"] is None and "token_ids" not in choice and "prompt_token_ids" not in answer


async def test_rollouts_come_in_the_order_of_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answered(row: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        item = {"prompt_token_ids": [row["n"]], "generation_token_ids": [1], "generation_log_probs": [-1.0]}
        return row, {"reward": 1, "response": {"output": [{"type": "reasoning"}, item]}}

    gym = Gym("http://127.0.0.1:9/v1", 1)
    backwards = SimpleNamespace(run_examples=lambda examples, **_: [answered(row) for row in reversed(examples)])
    monkeypatch.setattr(gym, "_collector", backwards)
    assert [rollout.prompt for rollout in await gym.rollouts([{"n": n} for n in range(3)])] == [[0], [1], [2]]


class SampledHere:
    """In place of `Gym`: rollouts sampled without any server. `off_by` is how far served log-probabilities are off."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, off_by: float = 0.0) -> None:
        self.log: list[Any] = []
        self._off_by = off_by

        @contextmanager
        def serving(policy: Policy) -> Iterator[str]:
            self._policy = policy
            monkeypatch.setattr(policy, "improve", self.log.append)
            yield "http://127.0.0.1:9/v1"

        monkeypatch.setattr(endpoint, "serving", serving)
        monkeypatch.setattr(train, "Gym", lambda base_url, head_port: self)

    def start(self) -> None:
        self.log.append("started")

    def shutdown(self) -> None:
        self.log.append("ended")

    async def rollouts(self, rows: Sequence[dict[str, Any]]) -> list[Rollout]:
        prompts = [sums.render(row["responses_create_params"]["input"]) for row in rows]
        samples = [self._policy.sample([prompt], 4)[0] for prompt in prompts]
        return [
            Rollout(prompt, sample.ids, [value + self._off_by for value in sample.logprobs], 0.0)
            for prompt, sample in zip(prompts, samples, strict=True)
        ]


def test_the_answers_to_a_question_are_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    gym = SampledHere(monkeypatch)
    train.train(3, steps=1, questions=2, group=3, warm_up=0, head_port=1)
    started, groups, ended = gym.log
    assert (started, ended) == ("started", "ended")
    assert [len(group) for group in groups] == [3, 3]
    first, second = ({tuple(rollout.prompt) for rollout in group} for group in groups)
    assert len(first) == len(second) == 1 and first != second


def test_what_was_not_sampled_like_this_is_not_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    gym = SampledHere(monkeypatch, off_by=1e-6)
    with pytest.raises(ValueError, match=r"differ by 1e-06 from those that were served"):
        train.train(3, steps=1, questions=1, group=2, warm_up=0, head_port=1)
    assert gym.log == ["started", "ended"]


def test_the_rise_leaves_out_what_is_between() -> None:
    curve = [{"step": float(step), "reward": float(step == 5)} for step in range(11)]
    assert rise(curve) == (0.0, 0.0)
    assert rise(curve, window=6) == pytest.approx((1 / 6, 1 / 6))
