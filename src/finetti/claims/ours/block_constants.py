"""F-chain-blocks: how far a deviation, or an error of any weight, is carried by real blocks.

Random blocks cannot see a constant that is too large; at the blocks here it is nearly attained.
"""

import math
from typing import Any

import numpy as np

from finetti.bounds import ours
from finetti.bounds.ours.block_components import SLOPES
from finetti.claims.claim import Check, Context, claim
from finetti.claims.evidence import Evidence, within
from finetti.claims.ours import block_forward
from finetti.claims.ours.block_cases import CASES, chain_use
from finetti.claims.perturbations import RATIO_RTOL, ratios_at_most_one
from finetti.claims.sparse_variables.tight_layers import AXES, balanced, two_tokens

STEP = 1e-4
# Where the derivative of an activation is largest.
STEEPEST = {
    "identity": 0.0,
    "relu": 1.0,
    "tanh": 0.0,
    "gelu": math.sqrt(2.0),
    "gelu_tanh": 1.4185040,
    "silu": 2.3993572,
}


def _matrix(norm: float, rows: int = 3, columns: int = 3) -> Any:
    return ours.MatrixWeights(rows=rows, columns=columns, norm=norm)


def _gain(norm: float, columns: int) -> Any:
    return ours.GainWeights(rows=1, columns=columns, norm=norm)


def _row(norm: float, columns: int = 3) -> Any:
    return ours.RowWeights(rows=1, columns=columns, norm=norm)


def _moved(before: np.ndarray, after: np.ndarray) -> float:
    return float(np.linalg.norm(before - after, axis=-1).max())


def _factor(passage: ours.Passage, name: str) -> float:
    """What an error of these weights is multiplied by."""
    (found,) = [each.log_factor for each in passage.parts if each.name == name]
    return math.exp(found)


def normalizations() -> dict[str, float]:
    """Tokens that leave 0 in a direction with mean 0: the slope there is g/√ε."""
    away = np.array([[1.0, -1.0, 1.0, -1.0]])
    gain, epsilon = 2.0, 1e-2
    norm = ours.NormalizationPiece(gain=_gain(gain, 4), epsilon=epsilon)
    found = norm.through(math.log(2.0))
    allowed = math.exp(found.log_lipschitz) * 2 * STEP
    centered = block_forward.layer_norm(STEP * away, gain, 0.0, epsilon)
    plain = block_forward.root_mean_square(STEP * away, gain, epsilon)
    # Far from 0 it has length √d·g, and moves by √d per unit of g.
    far = block_forward.layer_norm(1e3 * away, gain, 0.0, epsilon)
    more = block_forward.layer_norm(1e3 * away, gain + STEP, 0.0, epsilon)
    return {
        "LayerNorm at 0": float(np.linalg.norm(centered)) / allowed,
        "RMSNorm at 0": float(np.linalg.norm(plain)) / allowed,
        "LayerNorm, its radius": float(np.linalg.norm(far)) / math.exp(found.log_radius),
        "LayerNorm, its gain": _moved(far, more) / (_factor(found, "gain") * STEP),
    }


def _head(tokens: np.ndarray, scores: np.ndarray, bias: Any = 0.0, mixing: float = 1.0) -> Any:
    """A head by its products M and c."""
    weights = block_forward.softmax(tokens @ scores @ tokens.T + tokens @ (bias + np.zeros(3)))
    return weights @ (mixing * tokens)


def heads() -> dict[str, float]:
    """Two groups of tokens ±e₁ that are read evenly until something moves."""
    zero = np.zeros((3, 3))
    steep, before, after = balanced(50.0, step=STEP)
    loud = 100.0 * AXES[2]
    signs = np.repeat([1.0, -1.0], 100)[:, None]
    even, shifted = signs * AXES[0], signs * (AXES[0] + STEP * AXES[2])
    two, size = two_tokens(2.0), math.log(2.0)

    def allowed(score: float, bias: float, radius: float) -> Any:
        made = ours.ProductHeadPiece(
            score=_matrix(score), mixing=_matrix(3.0), score_bias=_row(bias)
        )
        return made.through(radius)

    by_tokens = _moved(_head(before, steep, mixing=3.0), _head(after, steep, mixing=3.0))
    by_bias = _moved(_head(even, zero, loud, 3.0), _head(shifted, zero, loud, 3.0))
    by_score = _moved(
        _head(two, zero, mixing=3.0), _head(two, STEP * np.outer(*AXES[[0, 0]]), mixing=3.0)
    )
    of_bias = _moved(_head(two, zero, mixing=3.0), _head(two, zero, STEP * AXES[0], 3.0))
    of_mixing = _moved(_head(two[:1], zero, mixing=3.0), _head(two[:1], zero, mixing=3.0 + STEP))
    longer = float(np.linalg.norm(after, axis=1).max())
    moved = _moved(before, after)
    one, other = allowed(50.0, 0.0, math.log(longer)), allowed(0.0, 100.0, 0.0)
    still = allowed(0.0, 0.0, size)
    return {
        "head, its tokens": by_tokens / (math.exp(one.log_lipschitz) * moved),
        "head with a bias, its tokens": by_bias / (math.exp(other.log_lipschitz) * STEP),
        "head, M": by_score / (_factor(still, "W_QK") * STEP),
        "head, c": of_bias / (_factor(still, "bias of W_QK") * STEP),
        "head, W_VW_O": of_mixing / (_factor(still, "W_VO") * STEP),
    }


def rotary() -> dict[str, float]:
    """±2e₁ under rotations that hardly turn, where W_Q, W_K or a bias leaves 0."""
    plane, small = np.eye(2), np.zeros((2, 2))
    tokens, unit = 2.0 * np.array([[1.0, 0.0], [-1.0, 0.0]]), np.array([[1.0, 0.0]])
    made = ours.RotaryHeadPiece(
        query=_matrix(1.0, 2, 2),
        key=_matrix(1.0, 2, 2),
        mixing=_matrix(1.0, 2, 2),
        query_bias=_row(1.0, 2),
        key_bias=_row(0.0, 2),
    )
    found = made.through(math.log(2.0))

    def out(query: Any, key: Any, query_bias: Any) -> np.ndarray:
        w = {"query": query, "key": key, "value": plane, "output": plane}
        w |= {"query_bias": query_bias, "key_bias": 0.0, "value_bias": 0.0}
        return block_forward.head(tokens, w, frequency=1e-9, causal=False)

    nothing = out(small, plane, 0.0 * unit)
    return {
        "rotary head, W_Q": _moved(nothing, out(STEP * plane, plane, 0.0 * unit))
        / (_factor(found, "W_Q") * STEP),
        "rotary head, W_K": _moved(nothing, out(plane, STEP * plane, unit))
        / (_factor(found, "W_K") * STEP),
        "rotary head, b_Q": _moved(nothing, out(small, plane, STEP * unit))
        / (_factor(found, "bias of W_Q") * STEP),
    }


def feed_forwards() -> dict[str, float]:
    """One hidden unit at its steepest."""
    one = np.ones((1, 1))
    found = {}
    for activation in SLOPES:
        made = ours.FeedForwardPiece(
            inner=_matrix(2.0, 1, 1), outer=_matrix(3.0, 1, 1), activation=activation
        )
        w = {"inner": 2 * one, "outer": 3 * one, "inner_bias": 0.0, "outer_bias": 0.0}
        at = STEEPEST[activation] / 2 * one
        outs = [block_forward.feed_forward(at + step, w, activation) for step in (-STEP, STEP)]
        allowed = math.exp(made.through(0.0).log_lipschitz) * 2 * STEP
        found[f"feed-forward, {activation}"] = _moved(*outs) / allowed
    return found


def gates() -> dict[str, float]:
    """An open gate of ReLU: all is one product."""
    one = np.ones((1, 1))
    made = ours.GatedPiece(
        gate=_matrix(2.0, 1, 1), up=_matrix(3.0, 1, 1), down=_matrix(5.0, 1, 1), activation="relu"
    )
    w: dict[str, Any] = {"gate": 2 * one, "up": 3 * one, "down": 5 * one}
    w |= dict.fromkeys(("gate_bias", "up_bias", "down_bias"), 0.0)
    found = made.through(math.log(4.0))
    outs = [block_forward.gated((4 - step) * one, w, "relu") for step in (0.0, STEP)]
    more = block_forward.gated(4 * one, w | {"gate": (2 + STEP) * one}, "relu")
    return {
        "gated, its tokens": _moved(*outs) / (math.exp(found.log_lipschitz) * STEP),
        "gated, W_gate": _moved(outs[0], more) / (_factor(found, "W_gate") * STEP),
        "gated, its radius": float(np.abs(outs[0]).max()) / math.exp(found.log_radius),
    }


def residuals() -> dict[str, float]:
    """Parts that point where their input points, and a chain of two."""
    away, epsilon = np.array([[1.0, -1.0]]) / math.sqrt(2), 1e-2
    linear = ours.LinearPiece(matrix=_matrix(3.0, 2, 2))
    norm = ours.NormalizationPiece(gain=_gain(1.0, 2), epsilon=epsilon)

    def normed(x: np.ndarray) -> np.ndarray:
        return block_forward.layer_norm(x, 1.0, 0.0, epsilon)

    outs = {
        "residual": STEP * away * (1 + 3),
        "pre": STEP * away + 3 * normed(STEP * away),
        "post": normed(STEP * away * (1 + 3)),
    }
    made = {
        "residual": ours.ResidualPiece(piece=linear),
        "pre": ours.ResidualPiece(piece=linear, normalization=norm),
        "post": ours.ResidualPiece(piece=linear, normalization=norm, order="post"),
    }
    found = {}
    for name, out in outs.items():
        allowed = math.exp(made[name].through(0.0).log_lipschitz) * STEP
        found[f"{name}, aligned"] = float(np.linalg.norm(out)) / allowed
    # Two residuals, x(1 + W)(1 + W): an error of the first W is multiplied by the second.
    chain = ours.follow((made["residual"], made["residual"]), 0.0)
    ends = [away * (1 + 3 + step) * (1 + 3) for step in (0.0, STEP)]
    allowed = math.exp(chain.parts[0].log_factor) * STEP
    found["two residuals, the first W"] = _moved(*ends) / allowed
    return found


@claim(
    id="F-chain-blocks",
    title="the chain for real blocks",
    statement="On inputs in a ball, norms, heads with biases, feed-forward and gated parts have "
    "Lipschitz constants in the norms of their weights, heads add, a residual adds 1, and "
    "constants multiply along the depth: errors of all weights move the output by at most their "
    "sum, each times what comes before and after.",
    formula=r"|out − \hat{out}| ≤ Σ_j a_j ρ_j x_j,  Lip(LN) = \frac{max|g|}{\sqrt{ε}},  Lip(head) "
    "= ‖W_V W_O‖ (1 + ρ (2 ‖M‖ ρ + ‖c‖)),  Lip(ffn) = Lip(σ) ‖W_1‖ ‖W_2‖,  Lip(gated) = ‖W_{down}‖ "
    "(‖W_{up}‖ sup|gate| + Lip(σ) ‖W_{gate}‖ sup|up|)",
    label="the chain for real blocks",
    check=Check.TIGHT,
    rejects="any of these constants larger or smaller by a factor of 1.021",
)
def f_chain_blocks(context: Context) -> Evidence:
    """Random small blocks of each kind whose tokens and weights move, and tight instances.

    Forward passes are plain NumPy; both the change of the output against the chain and the length
    of the output against its radius.
    """
    found = []
    for case in CASES:
        used, reached = chain_use(
            case, context.draws(case.name), context.pick(quick=500, paper=10_000)
        )
        found += [
            ratios_at_most_one(used, f"{case.name}: change"),
            ratios_at_most_one(reached, f"{case.name}: radius"),
        ]
    for part in (normalizations, heads, rotary, feed_forwards, gates, residuals):
        found += [
            within(f"tight: {name}", ratio, 0.98, 1 + RATIO_RTOL) for name, ratio in part().items()
        ]
    return Evidence(*found)
