"""Random small blocks of every kind, moved a little, against the chain of `bounds.ours`."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from finetti.bounds import ours
from finetti.claims.ours import block_forward as forward
from finetti.claims.ours.block_forward import Arrays

DIMENSION, HIDDEN, HEAD, TOKENS, HEADS = 4, 6, 2, 5, 2
EPSILON = 1e-2
FREQUENCY = 0.7
Make = Callable[[str], Any]


@dataclass(frozen=True)
class Kind:
    """A kind of block: shapes of its weights, what the chain sees of them, and both sides."""

    name: str
    shapes: Mapping[str, tuple[int, ...]]
    run: Callable[[np.ndarray, Arrays], np.ndarray]
    piece: Callable[[Make], ours.Piece]
    seen: Callable[[Arrays], Arrays] = lambda weights: weights
    last: bool = False  # ends with one number


def _head_shapes(h: int) -> dict[str, tuple[int, ...]]:
    inward, row = (DIMENSION, HEAD), (1, HEAD)
    return {
        **{f"{name}{h}": inward for name in ("query", "key", "value")},
        f"output{h}": (HEAD, DIMENSION),
        **{f"{name}_bias{h}": row for name in ("query", "key", "value")},
    }


def _heads(w: Arrays) -> list[Arrays]:
    names = {name[:-1] for name in w if name.endswith("1")}
    return [{name: w[f"{name}{h}"] for name in names} for h in range(1, HEADS + 1)]


def _seen_heads(w: Arrays) -> Arrays:
    """M, c and W_VW_O of every head, and one bias of all."""
    found, bias = dict(w), 0.0
    for h, each in enumerate(_heads(w), start=1):
        keys = each["key"].swapaxes(-1, -2)
        found[f"score{h}"] = each["query"] @ keys / math.sqrt(HEAD)
        found[f"score_bias{h}"] = each["query_bias"] @ keys / math.sqrt(HEAD)
        found[f"mixing{h}"] = each["value"] @ each["output"]
        bias = bias + each["value_bias"] @ each["output"]
    return found | {"bias": np.asarray(bias)}


def _attention(make: Make) -> ours.AttentionPiece:
    heads = (
        ours.ProductHeadPiece(
            score=make(f"score{h}"), mixing=make(f"mixing{h}"), score_bias=make(f"score_bias{h}")
        )
        for h in range(1, HEADS + 1)
    )
    return ours.AttentionPiece(heads=tuple(heads), bias=make("bias"))


def _rotary(make: Make) -> ours.AttentionPiece:
    names = ("query", "key", "query_bias", "key_bias", "mixing")
    heads = (
        ours.RotaryHeadPiece(**{name: make(f"{name}{h}") for name in names})
        for h in range(1, HEADS + 1)
    )
    return ours.AttentionPiece(heads=tuple(heads), bias=make("bias"))


def _norm(make: Make) -> ours.NormalizationPiece:
    return ours.NormalizationPiece(gain=make("gain"), shift=make("shift"), epsilon=EPSILON)


def _normed(x: np.ndarray, w: Arrays) -> np.ndarray:
    return forward.layer_norm(x, w["gain"], w["shift"], EPSILON)


def _feed(make: Make, activation: str) -> ours.FeedForwardPiece:
    names = ("inner", "outer", "inner_bias", "outer_bias")
    return ours.FeedForwardPiece(**{n: make(n) for n in names}, activation=activation)


def _gated(make: Make) -> ours.GatedPiece:
    names = ("gate", "up", "down", "gate_bias", "up_bias", "down_bias")
    return ours.GatedPiece(**{name: make(name) for name in names}, activation="silu")


ROW = (1, DIMENSION)
NORM = {"gain": ROW, "shift": ROW}
HEAD_SHAPES = {name: shape for h in (1, 2) for name, shape in _head_shapes(h).items()}
FEED = {
    "inner": (DIMENSION, HIDDEN),
    "outer": (HIDDEN, DIMENSION),
    "inner_bias": (1, HIDDEN),
    "outer_bias": ROW,
}
GATED = {
    **dict.fromkeys(("gate", "up"), (DIMENSION, HIDDEN)),
    "down": (HIDDEN, DIMENSION),
    **dict.fromkeys(("gate_bias", "up_bias"), (1, HIDDEN)),
    "down_bias": ROW,
}
TABLES = {"tokens": (7, DIMENSION), "positions": (TOKENS, DIMENSION)}


def _network(x: np.ndarray, w: Arrays) -> np.ndarray:
    """Rows of two tables, a pre-norm block, a norm, and a readout of the first token."""
    x = w["tokens"][:, np.arange(TOKENS) % 3] + w["positions"]
    x = x + forward.attention(_normed(x, w), _heads(w), causal=True)
    x = x + forward.feed_forward(x, w, "gelu")
    return (_normed(x, w) @ w["readout"])[:, :1]


def _network_piece(make: Make) -> ours.BlockNetwork:
    return ours.BlockNetwork(
        pieces=(
            ours.EmbeddingPiece(tables=(make("tokens"), make("positions"))),
            ours.ResidualPiece(piece=_attention(make), normalization=_norm(make)),
            ours.ResidualPiece(piece=_feed(make, "gelu")),
            _norm(make),
            ours.LinearPiece(matrix=make("readout"), name="w"),
        )
    )


KINDS = (
    Kind("LayerNorm", NORM, _normed, _norm),
    Kind(
        "RMSNorm",
        {"gain": ROW},
        lambda x, w: forward.root_mean_square(x, w["gain"], EPSILON),
        lambda make: ours.NormalizationPiece(gain=make("gain"), epsilon=EPSILON),
    ),
    Kind(
        "heads with biases and a mask",
        HEAD_SHAPES,
        lambda x, w: forward.attention(x, _heads(w), causal=True),
        _attention,
        _seen_heads,
    ),
    Kind(
        "rotary heads with biases",
        HEAD_SHAPES,
        lambda x, w: forward.attention(x, _heads(w), FREQUENCY),
        _rotary,
        _seen_heads,
    ),
    *(
        Kind(
            f"feed-forward, {name}",
            FEED,
            lambda x, w, name=name: forward.feed_forward(x, w, name),
            lambda make, name=name: _feed(make, name),
        )
        for name in ("gelu", "gelu_tanh", "silu", "relu")
    ),
    Kind("gated", GATED, lambda x, w: forward.gated(x, w, "silu"), _gated),
    Kind(
        "pre-norm block of heads",
        NORM | HEAD_SHAPES,
        lambda x, w: x + forward.attention(_normed(x, w), _heads(w)),
        lambda make: ours.ResidualPiece(piece=_attention(make), normalization=_norm(make)),
        _seen_heads,
    ),
    Kind(
        "post-norm block, gated",
        NORM | GATED,
        lambda x, w: _normed(x + forward.gated(x, w, "silu"), w),
        lambda make: ours.ResidualPiece(
            piece=_gated(make), normalization=_norm(make), order="post"
        ),
    ),
    Kind(
        "embedding, block, readout",
        TABLES | NORM | HEAD_SHAPES | FEED | {"readout": (DIMENSION, 1)},
        _network,
        _network_piece,
        _seen_heads,
        last=True,
    ),
)


def size_of(name: str, arrays: np.ndarray) -> np.ndarray:
    """The norm in which weights move: the largest entry, the longest row, or spectral."""
    if name == "gain":
        return np.abs(arrays).max(axis=(-1, -2))
    if "bias" in name or name in ("shift", "tokens", "positions"):
        return np.linalg.norm(arrays, axis=-1).max(axis=-1)
    return np.linalg.norm(arrays, 2, axis=(-2, -1))


def weights_of(name: str, shape: tuple[int, ...], norm: float) -> Any:
    """A class of these weights with one norm."""
    rows = "bias" in name or name in ("shift", "tokens", "positions")
    make = ours.RowWeights if rows else ours.MatrixWeights
    make = ours.GainWeights if name == "gain" else make
    return make(rows=shape[0], columns=shape[1], norm=norm)


def chain_use(kind: Kind, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """moved / (Lip·(tokens' move) + Σ_j a_jρ_jx_j), and output / radius, on ``count`` draws."""
    scale = 10.0 ** rng.uniform(-1, 0.5, size=(len(kind.shapes), count, 1, 1))
    w = {
        name: scale[i] * rng.normal(size=(count, *shape))
        for i, (name, shape) in enumerate(kind.shapes.items())
    }
    tokens = 10.0 ** rng.uniform(-1.5, 0.5, size=(count, 1, 1)) * rng.normal(
        size=(count, TOKENS, DIMENSION)
    )
    moved = {name: each + _step(rng, each) for name, each in w.items()}
    other = tokens + _step(rng, tokens)
    before, after = kind.run(tokens, w), kind.run(other, moved)
    out = np.linalg.norm(before - after, axis=-1).max(axis=-1)
    seen, seen_moved = kind.seen(w), kind.seen(moved)
    sizes = {n: np.maximum(size_of(n, a), size_of(n, seen_moved[n])) for n, a in seen.items()}
    steps = {n: size_of(n, a - seen_moved[n]) for n, a in seen.items()}
    step = np.linalg.norm(tokens - other, axis=-1).max(axis=-1)
    longest = np.maximum(*(np.linalg.norm(x, axis=-1).max(axis=-1) for x in (tokens, other)))
    largest = np.maximum(*(np.linalg.norm(x, axis=-1).max(axis=-1) for x in (before, after)))
    used, reached = np.empty(count), np.empty(count)
    for i in range(count):
        made = {
            name: weights_of(name, array.shape[1:], sizes[name][i]) for name, array in seen.items()
        }
        passage = kind.piece(made.__getitem__).through(math.log(longest[i]))
        names = {id(weights): name for name, weights in made.items()}
        allowed = 0.0 if kind.last else math.exp(passage.log_lipschitz) * step[i]
        for each in passage.parts:
            allowed += math.exp(each.log_factor) * steps[names[id(each.weights)]][i]
        used[i] = out[i] / allowed if allowed > 0 else 0.0
        reached[i] = largest[i] / math.exp(passage.log_radius)
    return used, reached


def _step(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    """In half of the draws nothing; else between a thousandth and all of its own size."""
    shape = (len(array), *[1] * (array.ndim - 1))
    size = rng.integers(0, 2, size=shape) * 10.0 ** rng.uniform(-3, 0, size=shape)
    typical = np.abs(array).mean(axis=tuple(range(1, array.ndim)), keepdims=True)
    return size * typical * rng.normal(size=array.shape)
