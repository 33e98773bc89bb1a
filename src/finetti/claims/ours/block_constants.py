"""F-chain-blocks: how far a deviation, or an error of any weight, is carried by real blocks.

Random blocks cannot see a constant that is too large; at the blocks here it is nearly attained.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from finetti.bounds import ours
from finetti.bounds.ours.block_components import SLOPES
from finetti.claims.claim import CheckMethod, Context, claim
from finetti.claims.evidence import Evidence, within
from finetti.claims.measures import RATIO_RTOL, ratios_at_most_one
from finetti.claims.ours.block_cases import (
    CASES,
    FEED,
    GATED,
    HEAD,
    HEAD_PARTS,
    LAYER_NORM,
    RMS_NORM,
    BlockCase,
    chain_use,
    draw_use,
    feed_case,
    gated_case,
    heads_case,
    residual_case,
)
from finetti.claims.sparse_variables.tight_layers import AXES, balanced, two_tokens

STEP = 1e-4
Uses = Iterator[tuple[str, float]]
# Where the derivative of an activation is largest.
STEEPEST = {
    "identity": 0.0,
    "relu": 1.0,
    "tanh": 0.0,
    "gelu": math.sqrt(2.0),
    "gelu_tanh": 1.4185040,
    "silu": 2.3993572,
}


def share(
    case: BlockCase,
    tokens: Any,
    weights: Any,
    other: Any = None,
    radius: bool = False,
    **moved: Any,
) -> float:
    """What one block uses of the chain while its tokens become ``other`` and its weights ``moved``.

    Or, where ``radius``, how much of the radius its output has.
    """
    w = {name: np.array(each, float, ndmin=3) for name, each in weights.items()}
    after = w | {name: np.array(each, float, ndmin=3) for name, each in moved.items()}
    used, reached = chain_use(
        case, tokens[None], w, (tokens if other is None else other)[None], after
    )
    return float((reached if radius else used)[0])


def normalizations() -> Uses:
    """Tokens that leave 0 in a direction with mean 0: the slope there is g/√ε."""
    away = np.array([[1.0, -1.0, 1.0, -1.0]])
    w = {"gain": np.full((1, 4), 2.0), "shift": np.zeros((1, 4))}
    for case in (LAYER_NORM, RMS_NORM):
        yield f"{case.name} at 0", share(case, 0 * away, w, STEP * away)
    # Far from 0 it has length √d·g, and moves by √d per unit of g.
    yield "LayerNorm, its radius", share(LAYER_NORM, 1e3 * away, w, radius=True)
    yield "LayerNorm, its gain", share(LAYER_NORM, 1e3 * away, w, gain=w["gain"] + STEP)


def one_head(width: int, **parts: Any) -> dict[str, Any]:
    """Weights of two heads: the second is 0, and so is of the first what ``parts`` leave out."""
    square, row = np.zeros((width, width)), np.zeros((1, width))
    zero = {name: row if "bias" in name else square for name in HEAD_PARTS}
    return {f"{n}2": each for n, each in zero.items()} | {
        f"{n}1": each for n, each in (zero | parts).items()
    }


def heads() -> Uses:
    """Two groups of tokens ±e₁ that are read evenly until something moves."""
    case = heads_case(penalty=0.0)
    steep, before, after = balanced(50.0, step=STEP)
    signs = np.repeat([1.0, -1.0], 100)[:, None]
    even, shifted = signs * AXES[0], signs * (AXES[0] + STEP * AXES[2])
    two, root = two_tokens(2.0), math.sqrt(3)

    def head(scores: Any = 0 * AXES, bias: Any = 0 * AXES[:1]) -> dict[str, Any]:
        """A head by its products M and c, W_VW_O = 3I."""
        return one_head(
            3, query=scores, query_bias=bias, key=root * AXES, value=AXES, output=3 * AXES
        )

    first = STEP * AXES[:1]
    yield "head, its tokens", share(case, before, head(steep), after)
    yield "head with a bias, its tokens", share(case, even, head(bias=100 * AXES[2:]), shifted)
    yield "head, M", share(case, two, head(), query1=first.T @ AXES[:1])
    yield "head, c", share(case, two, head(), query_bias1=first)
    yield "head, W_VW_O", share(case, two[:1], head(), output1=(3 + STEP) * AXES)


def rotary() -> Uses:
    """±2e₁ under rotations that hardly turn, where W_Q, W_K or a bias leaves 0."""
    case = heads_case(frequency=1e-9)
    tokens, plane = 2.0 * np.array([[1.0, 0.0], [-1.0, 0.0]]), np.eye(HEAD)
    unit, both = plane[:1], {"value": plane, "output": plane}
    by_query = one_head(2, key=plane, **both)
    by_key = one_head(2, query=plane, query_bias=unit, **both)
    yield "rotary head, W_Q", share(case, tokens, by_query, query1=STEP * plane)
    yield "rotary head, W_K", share(case, tokens, by_key, key1=STEP * plane)
    yield "rotary head, b_Q", share(case, tokens, by_query, query_bias1=STEP * unit)


def feed_forwards() -> Uses:
    """One hidden unit at its steepest; an open gate of ReLU, where all is one product."""
    one = np.ones((1, 1))
    w = dict.fromkeys(FEED, 0 * one) | {"inner": 2 * one, "outer": 3 * one}
    for activation in SLOPES:
        at = STEEPEST[activation] / 2 * one
        used = share(feed_case(activation), at - STEP, w, at + STEP)
        yield f"feed-forward, {activation}", used
    w = dict.fromkeys(GATED, 0 * one) | {"gate": 2 * one, "up": 3 * one, "down": 5 * one}
    case = gated_case("relu")
    yield "gated, its tokens", share(case, 4 * one, w, (4 - STEP) * one)
    yield "gated, W_gate", share(case, 4 * one, w, gate=(2 + STEP) * one)
    yield "gated, its radius", share(case, 4 * one, w, radius=True)


def residuals() -> Uses:
    """Parts that point where their input points, and a chain of two."""

    def linear(name: str) -> BlockCase:
        return BlockCase(
            name, lambda x, w: x @ w[name], lambda make: ours.LinearPiece(matrix=make(name))
        )

    away, matrix = np.array([[1.0, -1.0]]) / math.sqrt(2), 3 * np.eye(2)
    w = {"first": matrix, "gain": np.ones((1, 2)), "shift": np.zeros((1, 2))}
    for order in (None, "pre", "post"):
        case = residual_case(linear("first"), order)
        yield f"{order or 'residual'}, aligned", share(case, 0 * away, w, STEP * away)
    # x(1 + W)(1 + W′): an error of W is multiplied by what comes after it.
    first, second = (residual_case(linear(each)) for each in ("first", "second"))
    two = BlockCase(
        "two residuals",
        lambda x, w: second.run(first.run(x, w), w),
        lambda make: ours.BlockNetwork(pieces=(first.piece(make), second.piece(make))),
    )
    both, moved = {"first": matrix, "second": matrix}, matrix + STEP * np.eye(2)
    yield "two residuals, the first W", share(two, away, both, first=moved)


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
    check=CheckMethod.TIGHT,
    rejects="any of these constants larger or smaller by a factor of 1.021",
)
def f_chain_blocks(context: Context) -> Evidence:
    """Random small blocks of each kind whose tokens and weights move, and tight instances.

    Forward passes are plain NumPy; both the change of the output against the chain and the length
    of the output against its radius.
    """
    found = []
    for case in CASES:
        used, reached = draw_use(
            case, context.draws(case.name), context.pick(quick=500, paper=10_000)
        )
        found += [
            ratios_at_most_one(used, f"{case.name}: change"),
            ratios_at_most_one(reached, f"{case.name}: radius"),
        ]
    for part in (normalizations, heads, rotary, feed_forwards, residuals):
        found += [within(f"tight: {name}", used, 0.98, 1 + RATIO_RTOL) for name, used in part()]
    return Evidence(*found)
