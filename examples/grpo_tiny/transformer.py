"""A decoder-only transformer in NumPy, with its gradient written out, and Adam. Float64 throughout."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]
Weights = dict[str, Floats]


class Transformer:
    """Token ids [batch, length] to logits [batch, length, vocabulary]; `weights` are updated in place."""

    def __init__(
        self, vocabulary: int, *, context: int = 32, width: int = 32, layers: int = 2, heads: int = 2, seed: int = 0
    ) -> None:
        self.context, self.layers, self.heads = context, layers, heads
        rng = np.random.default_rng(seed)

        def random(rows: int, columns: int, scale: float) -> Floats:
            return rng.standard_normal((rows, columns)) * scale

        self.weights: Weights = {
            "tokens": random(vocabulary, width, 0.3),
            "places": random(context, width, 0.3),
            "head": random(width, vocabulary, width**-0.5),
        }
        for layer in range(layers):
            self.weights |= {
                f"qkv{layer}": random(width, 3 * width, width**-0.5),
                f"out{layer}": random(width, width, (2 * layers * width) ** -0.5),
                f"up{layer}": random(width, 4 * width, width**-0.5),
                f"down{layer}": random(4 * width, width, (8 * layers * width) ** -0.5),
            }

    def logits(self, ids: Ids) -> Floats:
        return self.forward(ids)[0]

    def forward(self, ids: Ids) -> tuple[Floats, Any]:
        """Logits, and what `backward` needs of this pass."""
        if ids.shape[1] > self.context:
            raise ValueError(f"{ids.shape[1]} tokens don't fit a context of {self.context}.")
        stream = self.weights["tokens"][ids] + self.weights["places"][: ids.shape[1]]
        layers = []
        for layer in range(self.layers):
            stream, kept_attention = self._attention(layer, stream)
            stream, kept_mlp = self._mlp(layer, stream)
            layers.append((kept_attention, kept_mlp))
        normed, scale = _norm(stream)
        return normed @ self.weights["head"], (ids, layers, normed, scale)

    def backward(self, gradient: Floats, kept: Any) -> Weights:
        """The gradient of every weight, from the gradient of a loss by the logits."""
        ids, layers, normed, scale = kept
        found: Weights = {"head": _flat(normed).T @ _flat(gradient)}
        stream = _norm_backward(gradient @ self.weights["head"].T, normed, scale)
        for layer in reversed(range(self.layers)):
            kept_attention, kept_mlp = layers[layer]
            stream = self._mlp_backward(layer, stream, kept_mlp, found)
            stream = self._attention_backward(layer, stream, kept_attention, found)
        found["places"] = np.zeros_like(self.weights["places"])
        found["places"][: ids.shape[1]] = stream.sum(0)
        found["tokens"] = np.zeros_like(self.weights["tokens"])
        np.add.at(found["tokens"], ids, stream)
        return found

    def _attention(self, layer: int, stream: Floats) -> tuple[Floats, Any]:
        normed, scale = _norm(stream)
        query, key, value = (self._split(part) for part in np.split(normed @ self.weights[f"qkv{layer}"], 3, axis=-1))
        length = stream.shape[1]
        unseen = np.triu(np.full((length, length), -np.inf), 1)
        attention = softmax(query @ key.swapaxes(-1, -2) * query.shape[-1] ** -0.5 + unseen)
        mixed = self._join(attention @ value)
        return stream + mixed @ self.weights[f"out{layer}"], (normed, scale, query, key, value, attention, mixed)

    def _attention_backward(self, layer: int, gradient: Floats, kept: Any, found: Weights) -> Floats:
        normed, scale, query, key, value, attention, mixed = kept
        found[f"out{layer}"] = _flat(mixed).T @ _flat(gradient)
        to_mixed = self._split(gradient @ self.weights[f"out{layer}"].T)
        to_attention = to_mixed @ value.swapaxes(-1, -2)
        to_scores = attention * (to_attention - (to_attention * attention).sum(-1, keepdims=True))
        to_scores *= query.shape[-1] ** -0.5
        parts = (to_scores @ key, to_scores.swapaxes(-1, -2) @ query, attention.swapaxes(-1, -2) @ to_mixed)
        to_qkv = np.concatenate([self._join(part) for part in parts], axis=-1)
        found[f"qkv{layer}"] = _flat(normed).T @ _flat(to_qkv)
        return gradient + _norm_backward(to_qkv @ self.weights[f"qkv{layer}"].T, normed, scale)

    def _mlp(self, layer: int, stream: Floats) -> tuple[Floats, Any]:
        normed, scale = _norm(stream)
        hidden = np.maximum(normed @ self.weights[f"up{layer}"], 0.0)
        return stream + hidden @ self.weights[f"down{layer}"], (normed, scale, hidden)

    def _mlp_backward(self, layer: int, gradient: Floats, kept: Any, found: Weights) -> Floats:
        normed, scale, hidden = kept
        found[f"down{layer}"] = _flat(hidden).T @ _flat(gradient)
        to_hidden = (gradient @ self.weights[f"down{layer}"].T) * (hidden > 0)
        found[f"up{layer}"] = _flat(normed).T @ _flat(to_hidden)
        return gradient + _norm_backward(to_hidden @ self.weights[f"up{layer}"].T, normed, scale)

    def _split(self, stream: Floats) -> Floats:
        """[batch, length, width] to [batch, head, length, width of a head]."""
        batch, length, _ = stream.shape
        return stream.reshape(batch, length, self.heads, -1).swapaxes(1, 2)

    def _join(self, heads: Floats) -> Floats:
        batch, _, length, _ = heads.shape
        return heads.swapaxes(1, 2).reshape(batch, length, -1)


class Adam:
    """Adam with gradients clipped to a norm of 1."""

    def __init__(self, weights: Weights, rate: float, betas: tuple[float, float] = (0.9, 0.99)) -> None:
        self._weights, self._rate, self._betas, self._steps = weights, rate, betas, 0
        self._means = {name: np.zeros_like(value) for name, value in weights.items()}
        self._squares = {name: np.zeros_like(value) for name, value in weights.items()}

    def step(self, gradients: Weights) -> None:
        self._steps += 1
        first, second = self._betas
        length = float(np.sqrt(sum(float((gradient**2).sum()) for gradient in gradients.values())))
        clip = min(1.0, 1.0 / (length + 1e-12))
        for name, weight in self._weights.items():
            gradient = gradients[name] * clip
            self._means[name] += (1 - first) * (gradient - self._means[name])
            self._squares[name] += (1 - second) * (gradient**2 - self._squares[name])
            mean = self._means[name] / (1 - first**self._steps)
            square = self._squares[name] / (1 - second**self._steps)
            weight -= self._rate * mean / (np.sqrt(square) + 1e-8)


def softmax(scores: Floats) -> Floats:
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True), dtype=np.float64)


def _flat(values: Floats) -> Floats:
    return values.reshape(-1, values.shape[-1])


def _norm(stream: Floats) -> tuple[Floats, Floats]:
    scale = 1.0 / np.sqrt((stream**2).mean(-1, keepdims=True) + 1e-6)
    return stream * scale, scale


def _norm_backward(gradient: Floats, normed: Floats, scale: Floats) -> Floats:
    return np.asarray(scale * (gradient - normed * (gradient * normed).mean(-1, keepdims=True)), dtype=np.float64)
