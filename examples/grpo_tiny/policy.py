"""The policy: sampling from the transformer, the base model's training, and the steps of GRPO."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from examples.grpo_tiny.sums import END, WORDS, demonstrations, encode
from examples.grpo_tiny.transformer import Adam, Floats, Transformer, softmax

_END = encode([END])[0]


@dataclass(frozen=True)
class Sample:
    """What was generated: token ids, the log-probability of each, and whether the model ended its answer itself."""

    ids: list[int]
    logprobs: list[float]
    ended: bool


@dataclass(frozen=True)
class Rollout:
    """A prompt, what was generated after it and with which log-probabilities, and the reward."""

    prompt: list[int]
    generated: list[int]
    logprobs: list[float]
    reward: float


class Policy:
    def __init__(self, seed: int, *, rate: float = 2e-3) -> None:
        self.model = Transformer(len(WORDS), context=48, seed=seed)
        self._rng = np.random.default_rng(seed)
        self._rate = rate
        self._adam = Adam(self.model.weights, rate)

    def learn_format(self, steps: int, *, guessed: float = 0.5, batch: int = 32) -> None:
        """Makes a base model of random weights: it boxes a letter, often the wrong one."""
        adam = Adam(self.model.weights, 1e-2)
        for _ in range(steps):
            shown = np.array(demonstrations(self._rng, batch, guessed=guessed))
            weights = np.zeros((batch, shown.shape[1] - 1))
            weights[:, -4:] = 1.0 / (4 * batch)
            adam.step(self._gradients(shown, weights))
        self._adam = Adam(self.model.weights, self._rate)

    def sample(self, prompts: Sequence[Sequence[int]], most: int) -> list[Sample]:
        """One answer of at most `most` tokens to each prompt. The prompts must be of one length."""
        ids = np.array(prompts, dtype=np.int64)
        most = min(most, self.model.context - ids.shape[1])
        logprobs = np.zeros((len(ids), 0))
        for _ in range(most):
            chances = softmax(self.model.logits(ids)[:, -1])
            thresholds = self._rng.random((len(ids), 1)) * chances.sum(-1, keepdims=True)
            chosen = (chances.cumsum(-1) > thresholds).argmax(-1)[:, None]
            logprobs = np.concatenate([logprobs, np.log(np.take_along_axis(chances, chosen, -1))], axis=1)
            ids = np.concatenate([ids, chosen], axis=1)
        return [
            _until_end(list(map(int, row)), list(map(float, values)))
            for row, values in zip(ids[:, -most:], logprobs, strict=True)
        ]

    def logprobs(self, rollouts: Sequence[Rollout]) -> list[Floats]:
        """The log-probability of each generated token as the model has it now."""
        tokens = _padded(rollouts)
        chances = np.log(softmax(self.model.logits(tokens[:, :-1])))
        taken = np.take_along_axis(chances, tokens[:, 1:, None], -1)[..., 0]
        spans = [(len(r.prompt) - 1, len(r.prompt) - 1 + len(r.generated)) for r in rollouts]
        return [taken[index, start:stop] for index, (start, stop) in enumerate(spans)]

    def improve(self, groups: Sequence[Sequence[Rollout]]) -> None:
        """One on-policy step of GRPO: each answer's weight is how far its reward lies above its group's mean."""
        rollouts = [rollout for group in groups for rollout in group]
        gains = np.concatenate([advantages([rollout.reward for rollout in group]) for group in groups])
        tokens = _padded(rollouts)
        weights = np.zeros((len(rollouts), tokens.shape[1] - 1))
        for index, rollout in enumerate(rollouts):
            start = len(rollout.prompt) - 1
            weights[index, start : start + len(rollout.generated)] = gains[index]
        self._adam.step(self._gradients(tokens, weights / sum(len(rollout.generated) for rollout in rollouts)))

    def _gradients(self, tokens: np.ndarray, weights: Floats) -> dict[str, Floats]:
        """Of the loss `-sum(weights * log-probability of the next token)`."""
        logits, kept = self.model.forward(tokens[:, :-1])
        by_logits = softmax(logits)
        np.put_along_axis(
            by_logits, tokens[:, 1:, None], np.take_along_axis(by_logits, tokens[:, 1:, None], -1) - 1.0, -1
        )
        return self.model.backward(by_logits * weights[..., None], kept)


def advantages(rewards: Sequence[float]) -> Floats:
    """Rewards of one group, less their mean, in standard deviations; zero where all are alike."""
    values = np.array(rewards, dtype=np.float64)
    return np.asarray((values - values.mean()) / (values.std() + 1e-4), dtype=np.float64)


def _padded(rollouts: Sequence[Rollout]) -> np.ndarray:
    rows = [[*rollout.prompt, *rollout.generated] for rollout in rollouts]
    longest = max(map(len, rows))
    return np.array([[*row, *[_END] * (longest - len(row))] for row in rows], dtype=np.int64)


def _until_end(ids: list[int], logprobs: list[float]) -> Sample:
    ended = _END in ids
    length = ids.index(_END) + 1 if ended else len(ids)
    return Sample(ids[:length], logprobs[:length], ended)
