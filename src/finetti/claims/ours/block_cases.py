"""Random small blocks of every kind, moved a little, against the chain of `bounds.ours`."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from finetti.bounds import ours
from finetti.claims.ours import block_forward
from finetti.claims.ours.block_forward import Arrays

DIMENSION, HIDDEN, HEAD, TOKENS, HEADS = 4, 6, 2, 5, (1, 2)
EPSILON = 1e-2
FREQUENCY = 0.7
Make = Callable[[str], Any]


@dataclass(frozen=True)
class BlockCase:
    """A kind of block: shapes of its weights, what the chain sees of them, and both sides."""

    name: str  # of its random draws
    run: Callable[[np.ndarray, Arrays], np.ndarray]
    piece: Callable[[Make], ours.Piece]
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # of random weights
    seen: Callable[[Arrays], Arrays] = lambda weights: weights
    last: bool = False  # ends with one number


ROW = (1, DIMENSION)
NORM = {"gain": ROW, "shift": ROW}
HEAD_PARTS = {
    **dict.fromkeys(("query", "key", "value"), (DIMENSION, HEAD)),
    "output": (HEAD, DIMENSION),
    **dict.fromkeys(("query_bias", "key_bias", "value_bias"), (1, HEAD)),
}
HEAD_SHAPES = {f"{name}{h}": shape for h in HEADS for name, shape in HEAD_PARTS.items()}
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


def _heads(w: Arrays) -> list[Arrays]:
    return [{name: w[f"{name}{h}"] for name in HEAD_PARTS} for h in HEADS]


def _seen_heads(w: Arrays) -> Arrays:
    """M, c and W_VW_O of every head, and one bias of all."""
    found, bias = dict(w), 0.0
    for h, each in zip(HEADS, _heads(w), strict=True):
        keys = each["key"].swapaxes(-1, -2) / math.sqrt(each["key"].shape[-1])
        found[f"score{h}"] = each["query"] @ keys
        found[f"score_bias{h}"] = each["query_bias"] @ keys
        found[f"mixing{h}"] = each["value"] @ each["output"]
        bias = bias + each["value_bias"] @ each["output"]
    return found | {"bias": np.asarray(bias)}


def _norm(make: Make) -> ours.NormalizationPiece:
    return ours.NormalizationPiece(gain=make("gain"), shift=make("shift"), epsilon=EPSILON)


def _normed(x: np.ndarray, w: Arrays) -> np.ndarray:
    return block_forward.layer_norm(x, w["gain"], w["shift"], EPSILON)


LAYER_NORM = BlockCase("LayerNorm", _normed, _norm, NORM)
RMS_NORM = BlockCase(
    "RMSNorm",
    lambda x, w: block_forward.root_mean_square(x, w["gain"], EPSILON),
    lambda make: ours.NormalizationPiece(gain=make("gain"), epsilon=EPSILON),
    {"gain": ROW},
)


def heads_case(name: str = "heads", **options: Any) -> BlockCase:
    """Heads with these options of `block_forward.block_attention`."""
    head, parts = ours.ProductHeadPiece, ["score", "score_bias", "mixing"]
    if "frequency" in options:
        head, parts = ours.RotaryHeadPiece, ["query", "key", "query_bias", "key_bias", "mixing"]

    def piece(make: Make) -> ours.AttentionPiece:
        made = (head(**{part: make(f"{part}{h}") for part in parts}) for h in HEADS)
        return ours.AttentionPiece(heads=tuple(made), bias=make("bias"))

    return BlockCase(
        name,
        lambda x, w: block_forward.block_attention(x, _heads(w), **options),
        piece,
        HEAD_SHAPES,
        _seen_heads,
    )


def feed_case(activation: str) -> BlockCase:
    """A feed-forward part."""
    return BlockCase(
        f"feed-forward, {activation}",
        lambda x, w: block_forward.feed_forward(x, w, activation),
        lambda make: ours.FeedForwardPiece(**{n: make(n) for n in FEED}, activation=activation),
        FEED,
    )


def gated_case(activation: str) -> BlockCase:
    """A gated part."""
    return BlockCase(
        "gated",
        lambda x, w: block_forward.gated(x, w, activation),
        lambda make: ours.GatedPiece(**{n: make(n) for n in GATED}, activation=activation),
        GATED,
    )


def residual_case(case: BlockCase, order: Any = None, name: str = "residual") -> BlockCase:
    """x + f(x), with a norm before f ("pre"), after the sum ("post"), or with none."""

    def run(x: np.ndarray, w: Arrays) -> np.ndarray:
        if order == "post":
            return _normed(x + case.run(x, w), w)
        return x + case.run(_normed(x, w) if order else x, w)

    def piece(make: Make) -> ours.ResidualPiece:
        options = {"normalization": _norm(make), "order": order} if order else {}
        return ours.ResidualPiece(piece=case.piece(make), **options)

    return BlockCase(name, run, piece, {**NORM, **case.shapes} if order else case.shapes, case.seen)


_BLOCK = residual_case(heads_case(causal=True), "pre"), residual_case(feed_case("gelu"))


def _network(x: np.ndarray, w: Arrays) -> np.ndarray:
    """Rows of two tables, a pre-norm block, a norm, and a readout of the first token."""
    x = w["tokens"][:, np.arange(TOKENS) % 3] + w["positions"]
    for part in _BLOCK:
        x = part.run(x, w)
    return (_normed(x, w) @ w["readout"])[:, :1]


def _network_piece(make: Make) -> ours.BlockNetwork:
    first = ours.EmbeddingPiece(tables=(make("tokens"), make("positions")))
    last = ours.LinearPiece(matrix=make("readout"), name="w")
    block = (part.piece(make) for part in _BLOCK)
    return ours.BlockNetwork(pieces=(first, *block, _norm(make), last))


CASES = (
    LAYER_NORM,
    RMS_NORM,
    heads_case("heads with biases and a mask", causal=True),
    heads_case("rotary heads with biases", frequency=FREQUENCY),
    *map(feed_case, ("gelu", "gelu_tanh", "silu", "relu")),
    gated_case("silu"),
    residual_case(heads_case(), "pre", "pre-norm block of heads"),
    residual_case(gated_case("silu"), "post", "post-norm block, gated"),
    BlockCase(
        "embedding, block, readout",
        _network,
        _network_piece,
        TABLES | NORM | HEAD_SHAPES | FEED | {"readout": (DIMENSION, 1)},
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


def draw_use(
    case: BlockCase, rng: np.random.Generator, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """`chain_use` on ``count`` random blocks and tokens that move."""
    scale = 10.0 ** rng.uniform(-1, 0.5, size=(len(case.shapes), count, 1, 1))
    w = {
        name: scale[i] * rng.normal(size=(count, *shape))
        for i, (name, shape) in enumerate(case.shapes.items())
    }
    tokens = 10.0 ** rng.uniform(-1.5, 0.5, size=(count, 1, 1)) * rng.normal(
        size=(count, TOKENS, DIMENSION)
    )
    moved = {name: each + _step(rng, each) for name, each in w.items()}
    return chain_use(case, tokens, w, tokens + _step(rng, tokens), moved)


def chain_use(
    case: BlockCase, tokens: np.ndarray, w: Arrays, other: np.ndarray, moved: Arrays
) -> tuple[np.ndarray, np.ndarray]:
    """moved / (Lip·(tokens' move) + Σ_j a_jρ_jx_j), and output / radius, of every draw."""
    before, after = case.run(tokens, w), case.run(other, moved)
    out = _longest(before - after)
    seen, seen_moved = case.seen(w), case.seen(moved)
    sizes = {n: np.maximum(size_of(n, a), size_of(n, seen_moved[n])) for n, a in seen.items()}
    steps = {n: size_of(n, a - seen_moved[n]) for n, a in seen.items()}
    step = _longest(tokens - other)
    longest = np.maximum(_longest(tokens), _longest(other))
    largest = np.maximum(_longest(before), _longest(after))
    used, reached = np.empty(len(out)), np.empty(len(out))
    for i in range(len(out)):
        made = {
            name: weights_of(name, array.shape[1:], sizes[name][i]) for name, array in seen.items()
        }
        bound = case.piece(made.__getitem__).propagate(math.log(longest[i]))
        names = {id(weights): name for name, weights in made.items()}
        allowed = 0.0 if case.last else math.exp(bound.log_lipschitz) * step[i]
        for each in bound.parts:
            allowed += math.exp(each.log_factor) * steps[names[id(each.weights)]][i]
        used[i] = out[i] / allowed if allowed > 0 else 0.0
        reached[i] = largest[i] / math.exp(bound.log_radius)
    return used, reached


def _step(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    """In half of the draws nothing; else between a thousandth and all of its own size."""
    shape = (len(array), *[1] * (array.ndim - 1))
    size = rng.integers(0, 2, size=shape) * 10.0 ** rng.uniform(-3, 0, size=shape)
    typical = np.abs(array).mean(axis=tuple(range(1, array.ndim)), keepdims=True)
    return size * typical * rng.normal(size=array.shape)
