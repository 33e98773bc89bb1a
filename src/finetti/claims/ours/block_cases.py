"""Random small blocks of every kind, moved a little, against the chain of `bounds.ours`."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from finetti.bounds import ours
from finetti.claims.ours import block_forward
from finetti.claims.ours.block_forward import Arrays

DIMENSION, HIDDEN, HEAD, TOKENS, HEADS = 4, 6, 2, 5, 2
EPSILON = 1e-2
FREQUENCY = 0.7
Make = Callable[[str], Any]


@dataclass(frozen=True)
class BlockCase:
    """A kind of block: shapes of its weights, what the chain sees of them, and both sides."""

    name: str
    shapes: Mapping[str, tuple[int, ...]]
    run: Callable[[np.ndarray, Arrays], np.ndarray]
    piece: Callable[[Make], ours.Piece]
    seen: Callable[[Arrays], Arrays] = lambda weights: weights
    last: bool = False  # ends with one number


def _heads(w: Arrays) -> list[Arrays]:
    return [{name: w[f"{name}{h}"] for name in HEAD_PARTS} for h in range(1, HEADS + 1)]


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


def _attention(head: type, make: Make, *names: str) -> ours.AttentionPiece:
    """Heads of this class, each of the weights with these names and its number."""
    numbers = range(1, HEADS + 1)
    heads = tuple(head(**{name: make(f"{name}{h}") for name in names}) for h in numbers)
    return ours.AttentionPiece(heads=heads, bias=make("bias"))


def _product_heads(make: Make) -> ours.AttentionPiece:
    return _attention(ours.ProductHeadPiece, make, "score", "mixing", "score_bias")


def _rotary_heads(make: Make) -> ours.AttentionPiece:
    names = ("query", "key", "query_bias", "key_bias", "mixing")
    return _attention(ours.RotaryHeadPiece, make, *names)


def _norm(make: Make) -> ours.NormalizationPiece:
    return ours.NormalizationPiece(gain=make("gain"), shift=make("shift"), epsilon=EPSILON)


def _normed(x: np.ndarray, w: Arrays) -> np.ndarray:
    return block_forward.layer_norm(x, w["gain"], w["shift"], EPSILON)


def _feed(make: Make, activation: str) -> ours.FeedForwardPiece:
    return ours.FeedForwardPiece(**{name: make(name) for name in FEED}, activation=activation)


def _gated(make: Make) -> ours.GatedPiece:
    return ours.GatedPiece(**{name: make(name) for name in GATED}, activation="silu")


ROW = (1, DIMENSION)
NORM = {"gain": ROW, "shift": ROW}
HEAD_PARTS = {
    **dict.fromkeys(("query", "key", "value"), (DIMENSION, HEAD)),
    "output": (HEAD, DIMENSION),
    **dict.fromkeys(("query_bias", "key_bias", "value_bias"), (1, HEAD)),
}
HEAD_SHAPES = {f"{name}{h}": shape for h in (1, 2) for name, shape in HEAD_PARTS.items()}
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
    x = x + block_forward.block_attention(_normed(x, w), _heads(w), causal=True)
    x = x + block_forward.feed_forward(x, w, "gelu")
    return (_normed(x, w) @ w["readout"])[:, :1]


def _network_piece(make: Make) -> ours.BlockNetwork:
    return ours.BlockNetwork(
        pieces=(
            ours.EmbeddingPiece(tables=(make("tokens"), make("positions"))),
            ours.ResidualPiece(piece=_product_heads(make), normalization=_norm(make)),
            ours.ResidualPiece(piece=_feed(make, "gelu")),
            _norm(make),
            ours.LinearPiece(matrix=make("readout"), name="w"),
        )
    )


CASES = (
    BlockCase("LayerNorm", NORM, _normed, _norm),
    BlockCase(
        "RMSNorm",
        {"gain": ROW},
        lambda x, w: block_forward.root_mean_square(x, w["gain"], EPSILON),
        lambda make: ours.NormalizationPiece(gain=make("gain"), epsilon=EPSILON),
    ),
    BlockCase(
        "heads with biases and a mask",
        HEAD_SHAPES,
        lambda x, w: block_forward.block_attention(x, _heads(w), causal=True),
        _product_heads,
        _seen_heads,
    ),
    BlockCase(
        "rotary heads with biases",
        HEAD_SHAPES,
        lambda x, w: block_forward.block_attention(x, _heads(w), FREQUENCY),
        _rotary_heads,
        _seen_heads,
    ),
    *(
        BlockCase(
            f"feed-forward, {name}",
            FEED,
            lambda x, w, name=name: block_forward.feed_forward(x, w, name),
            lambda make, name=name: _feed(make, name),
        )
        for name in ("gelu", "gelu_tanh", "silu", "relu")
    ),
    BlockCase("gated", GATED, lambda x, w: block_forward.gated(x, w, "silu"), _gated),
    BlockCase(
        "pre-norm block of heads",
        NORM | HEAD_SHAPES,
        lambda x, w: x + block_forward.block_attention(_normed(x, w), _heads(w)),
        lambda make: ours.ResidualPiece(piece=_product_heads(make), normalization=_norm(make)),
        _seen_heads,
    ),
    BlockCase(
        "post-norm block, gated",
        NORM | GATED,
        lambda x, w: _normed(x + block_forward.gated(x, w, "silu"), w),
        lambda make: ours.ResidualPiece(
            piece=_gated(make), normalization=_norm(make), order="post"
        ),
    ),
    BlockCase(
        "embedding, block, readout",
        TABLES | NORM | HEAD_SHAPES | FEED | {"readout": (DIMENSION, 1)},
        _network,
        _network_piece,
        _seen_heads,
        last=True,
    ),
)


def _in_rows(name: str) -> bool:
    """Whether weights are a table or a vector, whose rows have a length each."""
    return "bias" in name or name in ("gain", "shift", "tokens", "positions")


def size_of(name: str, arrays: np.ndarray) -> np.ndarray:
    """The norm in which weights move: the largest entry, the longest row, or spectral."""
    if name == "gain":
        return np.abs(arrays).max(axis=(-1, -2))
    if _in_rows(name):
        return _longest(arrays)
    return np.linalg.norm(arrays, 2, axis=(-2, -1))


def weights_of(name: str, shape: tuple[int, ...], norm: float) -> Any:
    """A class of these weights with one norm."""
    make = ours.RowWeights if _in_rows(name) else ours.MatrixWeights
    make = ours.GainWeights if name == "gain" else make
    return make(rows=shape[0], columns=shape[1], norm=norm)


def _longest(arrays: np.ndarray) -> np.ndarray:
    return np.linalg.norm(arrays, axis=-1).max(axis=-1)


def chain_use(
    case: BlockCase, rng: np.random.Generator, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """moved / (Lip·(tokens' move) + Σ_j a_jρ_jx_j), and output / radius, on ``count`` draws."""
    scale = 10.0 ** rng.uniform(-1, 0.5, size=(len(case.shapes), count, 1, 1))
    w = {
        name: scale[i] * rng.normal(size=(count, *shape))
        for i, (name, shape) in enumerate(case.shapes.items())
    }
    tokens = 10.0 ** rng.uniform(-1.5, 0.5, size=(count, 1, 1)) * rng.normal(
        size=(count, TOKENS, DIMENSION)
    )
    moved = {name: each + _step(rng, each) for name, each in w.items()}
    other = tokens + _step(rng, tokens)
    before, after = case.run(tokens, w), case.run(other, moved)
    out = _longest(before - after)
    seen, seen_moved = case.seen(w), case.seen(moved)
    sizes = {n: np.maximum(size_of(n, a), size_of(n, seen_moved[n])) for n, a in seen.items()}
    steps = {n: size_of(n, a - seen_moved[n]) for n, a in seen.items()}
    step = _longest(tokens - other)
    longest = np.maximum(_longest(tokens), _longest(other))
    largest = np.maximum(_longest(before), _longest(after))
    used, reached = np.empty(count), np.empty(count)
    for i in range(count):
        made = {
            name: weights_of(name, array.shape[1:], sizes[name][i]) for name, array in seen.items()
        }
        passage = case.piece(made.__getitem__).through(math.log(longest[i]))
        names = {id(weights): name for name, weights in made.items()}
        allowed = 0.0 if case.last else math.exp(passage.log_lipschitz) * step[i]
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
