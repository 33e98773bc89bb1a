"""Forward passes of real blocks in plain NumPy, many at a time: the first axis is the draw.

Written from the definitions, without the code of `bounds`; matrices act on rows, z ↦ zW.
"""

import math
from typing import Any

import numpy as np
from scipy import special

Arrays = dict[str, np.ndarray]
ACTIVATIONS = {
    "identity": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "gelu": lambda x: x * special.ndtr(x),
    "gelu_tanh": lambda x: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x * special.expit(x),
}


def layer_norm(tokens: np.ndarray, gain: Any, shift: Any, epsilon: float) -> np.ndarray:
    """g ⊙ (x − x̄)/√(var + ε) + β."""
    centered = tokens - tokens.mean(axis=-1, keepdims=True)
    return root_mean_square(centered, gain, epsilon) + shift


def root_mean_square(tokens: np.ndarray, gain: Any, epsilon: float) -> np.ndarray:
    """g ⊙ x/√(mean x² + ε)."""
    return gain * tokens / np.sqrt((tokens**2).mean(axis=-1, keepdims=True) + epsilon)


def softmax(scores: np.ndarray) -> np.ndarray:
    """Over the last axis."""
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def rotated(tokens: np.ndarray, frequency: float) -> np.ndarray:
    """Pairs of coordinates turned by position·frequency^i: rotary positions."""
    count, width = tokens.shape[-2:]
    angles = np.arange(count)[:, None] * frequency ** np.arange(1, width // 2 + 1)
    cos, sin = np.cos(angles), np.sin(angles)
    even, odd = tokens[..., 0::2], tokens[..., 1::2]
    turned = np.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1)
    return turned.reshape(tokens.shape)


def head(
    tokens: np.ndarray, w: Arrays, frequency: float | None, causal: bool, penalty: float
) -> np.ndarray:
    """One head with all its biases; rotated, or with a ``penalty`` per distance (ALiBi)."""
    query = tokens @ w["query"] + w["query_bias"]
    key = tokens @ w["key"] + w["key_bias"]
    count = tokens.shape[-2]
    distance = np.arange(count)[:, None] - np.arange(count)
    if frequency is not None:
        query, key = rotated(query, frequency), rotated(key, frequency)
    scores = query @ key.swapaxes(-1, -2) / math.sqrt(query.shape[-1])
    if frequency is None:
        scores = scores - penalty * np.abs(distance)
    if causal:
        scores = np.where(distance >= 0, scores, -np.inf)
    return softmax(scores) @ (tokens @ w["value"] + w["value_bias"]) @ w["output"]


def block_attention(
    tokens: np.ndarray,
    heads: list[Arrays],
    frequency: float | None = None,
    causal: bool = False,
    penalty: float = 0.5,
) -> np.ndarray:
    """Heads, added."""
    return sum(head(tokens, each, frequency, causal, penalty) for each in heads)  # pyright: ignore[reportReturnType]


def feed_forward(tokens: np.ndarray, w: Arrays, activation: str) -> np.ndarray:
    """σ(xW₁ + b₁)W₂ + b₂."""
    hidden = ACTIVATIONS[activation](tokens @ w["inner"] + w["inner_bias"])
    return hidden @ w["outer"] + w["outer_bias"]


def gated(tokens: np.ndarray, w: Arrays, activation: str) -> np.ndarray:
    """(σ(xW_gate + b_gate) ⊙ (xW_up + b_up))W_down + b_down."""
    gate = ACTIVATIONS[activation](tokens @ w["gate"] + w["gate_bias"])
    return gate * (tokens @ w["up"] + w["up_bias"]) @ w["down"] + w["down_bias"]
