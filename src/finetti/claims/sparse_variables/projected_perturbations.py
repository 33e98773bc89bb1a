"""Lemmas 4.3, A.9 and A.13 to A.17, Corollary A.7: how far what is read, a head, a layer and a
network of paper S move."""

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from finetti import attention
from finetti.attention import lipschitz
from finetti.claims.claim import CheckMethod, Claim, Context, Erratum, claim
from finetti.claims.evidence import Evidence, Verdict, at_least, at_most, close, within
from finetti.claims.measures import (
    DRAWS,
    RATIO_RTOL,
    Ratio,
    is_tight,
    log_uniform_scales,
    normalized,
    perturbed_copies,
    ratio,
    ratios_at_most_one,
    vmap_jit,
)
from finetti.claims.sparse_variables.tight_layers import (
    AXES,
    LAYER_DIMENSION,
    balanced,
    first_axis,
    layer,
    layer_tokens,
    layer_weights,
    relu_layer,
    relu_network,
    two_layers,
    two_tokens,
)
from finetti.core.numerics.extremes import largest_of


@claim(
    id="S-cor-A.7",
    title="softmax is 1-Lipschitz, from ℓ_∞ to ℓ₁",
    statement="Softmax moves no more than its scores, and the constant 1 is sharp, where 2 is "
    "printed; at any distance it moves by less than 2.",
    formula=r"‖softmax(θ) − softmax(θ′)‖_1 ≤ 2 tanh(\frac{‖θ−θ′‖_∞}{2}) ≤ ‖θ − θ′‖_∞",
    check=CheckMethod.TIGHT,
    rejects="a bound larger or smaller by a factor of 1.021",
)
def s_cor_a_7(context: Context) -> Evidence:
    """Random scores against both bounds, and two equal scores that are moved apart."""
    rng = context.draws()
    scores = log_uniform_scales(rng, -1, 1, DRAWS)[..., 0] * rng.normal(size=(DRAWS, 6))
    other = scores + log_uniform_scales(rng, -3, 1, DRAWS)[..., 0] * rng.choice(
        [-1.0, 0, 1], size=(DRAWS, 6)
    )
    moved = vmap_jit(lipschitz.softmax_perturbation, scores, other)
    largest = np.asarray(moved.bound)
    limit = np.where(largest == 0, 1.0, lipschitz.softmax_distance(largest))
    saturated = np.asarray(moved.measured) / limit
    apart = np.zeros(2), np.array([1e-3, -1e-3])
    return Evidence(
        ratios_at_most_one(np.asarray(moved.ratio)),
        is_tight("two equal scores moved apart", ratio(lipschitz.softmax_perturbation, *apart)),
        at_most("largest ratio to 2 tanh(δ/2)", saturated.max(), 1 + RATIO_RTOL),
    )


def _draw_pairs(context: Context) -> tuple[np.ndarray, np.ndarray]:
    """Random pairs of tokens, near and far, short and long."""
    rng = context.draws()
    first = log_uniform_scales(rng, -3, 3, DRAWS)[:, 0] * rng.normal(size=(DRAWS, 4))
    return first, first + log_uniform_scales(rng, -4, 2, DRAWS)[:, 0] * rng.normal(size=(DRAWS, 4))


def _stretch(first: np.ndarray, second: np.ndarray, project: Callable[[Any], Any]) -> np.ndarray:
    """‖Πa − Πb‖ / ‖a − b‖."""
    images = [np.asarray(project(each)) for each in (first, second)]
    return np.linalg.norm(images[0] - images[1], axis=1) / np.linalg.norm(first - second, axis=1)


@claim(
    id="S-lemma-A.9",
    title="projection onto the ball is a contraction",
    statement="The projection Π of tokens onto the unit ball brings no two of them apart.",
    formula="‖Π(a) − Π(b)‖ ≤ ‖a − b‖",
    check=CheckMethod.TIGHT,
    rejects="a stretch above 1, and one that stays 1e-6 below",
)
def s_lemma_a_9(context: Context) -> Evidence:
    """The largest stretch of random pairs, and the inequality of a proof without cases, in each of
    the cases of the printed one."""
    project = attention.project_ball
    first, second = _draw_pairs(context)
    largest = _stretch(first, second, project).max()
    moved, apart = np.asarray(project(first)) - np.asarray(project(second)), first - second
    # ⟨Πa − Πb, a − b⟩ − ‖Πa − Πb‖² over ‖a − b‖²
    spare = (moved * (apart - moved)).sum(axis=1) / (apart**2).sum(axis=1)
    outside = sum((np.linalg.norm(each, axis=1) > 1).astype(int) for each in (first, second))
    cases = enumerate(("both inside", "one inside", "both outside"))
    return Evidence(
        at_most(f"largest stretch of {DRAWS} pairs", largest, 1 + RATIO_RTOL),
        at_least("the same, so that 1 is sharp", largest, 1 - 1e-6),
        *(
            at_least(f"least spare, {name}", spare[outside == count].min(), -RATIO_RTOL)
            for count, name in cases
        ),
        note="With c = Πb in ⟨a − Πa, c − Πa⟩ ≤ 0, the angle at a nearest point of a convex set, "
        "and the same for b, the sum of both is ⟨Πa − Πb, a − b⟩ ≥ ‖Πa − Πb‖²; Cauchy–Schwarz "
        "gives the lemma.",
    )


s_erratum_17 = Claim(
    id="S-erratum-17",
    title="Lemma A.9 stands, its printed proof does not",
    statement="The projection onto the unit ball is firmly nonexpansive, which gives Lemma A.9.",
    formula="⟨Πa − Πb, a − b⟩ ≥ ‖Πa − Πb‖^2",
    label="Lemma A.9, proof",
    expected=Verdict.HOLDS,
    erratum="The printed proof has misprints; the lemma is true.",
    rests_on=("S-lemma-A.9",),
)


@claim(
    id="S-lemma-A.9-sphere",
    title="neither dividing by the length nor LayerNorm is a contraction",
    statement="Dividing by the length tears tokens of length r apart by 1/r; the best Lipschitz "
    "constant of LayerNorm grows without limit as its ε falls.",
    formula=r"‖LN(a) − LN(b)‖ ≤ \frac{max|g|}{\sqrt{ε}} ‖a − b‖",
    label="Lemma A.9 (the paper projects onto the ball; this is ours)",
    check=CheckMethod.TIGHT,
    rejects="a constant larger or smaller by a factor of 1.021",
)
def s_lemma_a_9_sphere(context: Context) -> Evidence:
    """How far dividing by the length and LayerNorm move tokens apart, ε = 1e-5."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    epsilon, width = 1e-5, 4
    gain = context.draws().uniform(0.5, 2, size=width)
    plain = eqx.nn.LayerNorm(width, eps=epsilon)
    normalize = eqx.tree_at(lambda norm: norm.weight, plain, jnp.asarray(gain))
    ratio = _stretch(*_draw_pairs(context), jax.vmap(normalize)).max() * epsilon**0.5 / gain.max()
    # Tokens whose coordinates are nearly equal: there the length that LayerNorm divides by is √ε.
    still, step = np.ones((1, width)), 1e-6 * np.array([[1.0, -1.0, 0.0, 0.0]])
    flat = _stretch(still, still + step, jax.vmap(plain))[0] * epsilon**0.5
    short = np.geomspace(1e-3, 0.1, 100)[:, None] * np.array([[1.0, 0.0]])
    torn = _stretch(short, short + 1e-9 * np.array([[0.0, 1.0]]), normalized)
    miss = np.abs(torn * short[:, 0] - 1).max()
    return Evidence(
        close("sphere: stretch of short tokens times their length, minus 1", miss, 1e-5),
        at_most("LayerNorm: largest stretch / (max|gain|/√ε)", ratio, 1 + RATIO_RTOL),
        within("LayerNorm at equal coordinates / (1/√ε)", flat, 0.98, 1 + RATIO_RTOL),
    )


def _draw_heads(rng: np.random.Generator) -> tuple:
    weights = layer_weights(rng, DRAWS)
    moved = [*perturbed_copies(rng, weights[:3]), weights[3]]
    query = rng.normal(size=(DRAWS, LAYER_DIMENSION))
    return weights, moved, layer_tokens(rng, DRAWS), query


def _two_heads(weights: Any, moved: Any, tokens: Any, query: Any) -> tuple:
    heads = (attention.MultiHead.single(*each, activation="gelu") for each in (weights, moved))
    return *heads, tokens, query


def _moved_heads(score: float, value: float, count: int) -> tuple:
    """Heads over the first ``count`` of two opposite tokens, whose M = 0 or W_V = 1 changes."""
    pair = (
        attention.MultiHead.single(first_axis(each[0]), AXES, each[1] * AXES, AXES)
        for each in ((0.0, 1.0), (score, value))
    )
    tokens = two_tokens(3.0)
    return *pair, tokens[:count], tokens[0]


def _draw_layers(rng: np.random.Generator) -> tuple:
    weights = layer_weights(rng, DRAWS)
    moved = perturbed_copies(rng, weights)
    return layer_tokens(rng, DRAWS), weights, moved


def _leaving_zero(length: float) -> tuple:
    return layer(first_axis(0.0)), layer(first_axis(1e-3)), two_tokens(length)


def _draw_layers_and_tokens(rng: np.random.Generator) -> tuple:
    weights = layer_weights(rng, DRAWS)
    tokens = layer_tokens(rng, DRAWS)
    (other,) = perturbed_copies(rng, [tokens])
    return tokens, other, weights, perturbed_copies(rng, weights)


def _draw_layer_and_tokens(rng: np.random.Generator) -> tuple:
    tokens = layer_tokens(rng, DRAWS)
    (other,) = perturbed_copies(rng, [tokens])
    return layer_weights(rng, DRAWS), tokens, other


def _even_layer() -> tuple:
    """A query that reads 200 tokens e₁ and 200 tokens −e₁ until they move."""
    matrix, before, after = balanced(score_norm=50.0, step=1e-6)
    return layer(matrix), before, after


def _even_layers() -> tuple:
    """The same with values a tenth as long: no row reaches the ball, which changes nothing."""
    matrix, before, after = balanced(score_norm=50.0, step=1e-6)
    same = layer(matrix, values=0.1 * AXES)
    return same, same, before, after


def _draw_readouts(rng: np.random.Generator) -> tuple:
    weights = rng.normal(size=(2, DRAWS, LAYER_DIMENSION))
    tokens = layer_tokens(rng, DRAWS)
    return *weights, tokens, *perturbed_copies(rng, [tokens])


def _along_readout() -> tuple:
    """A token that moves along w = (1, 2, 3)."""
    along = np.array([1.0, 2.0, 3.0])
    readout = attention.TokenReadout(along)
    return readout, readout, np.zeros((2, 3)), np.stack([along, along])


def _draw_networks(depth: int, rng: np.random.Generator) -> tuple:
    """Half of the networks differ in their first layer only and hardly look at scores: there the
    order of the layers matters most."""
    count = 500
    weights = [layer_weights(rng, count, spread=0.5) for _ in range(depth)]
    first_only = (np.arange(count) % 2 == 0)[:, None, None]
    for each in weights:
        each[0] = np.where(first_only, 0.01 * each[0], each[0])
    moved = [perturbed_copies(rng, weights[0])]
    for each in weights[1:]:
        near = perturbed_copies(rng, each)
        moved.append([np.where(first_only, a, b) for a, b in zip(each, near, strict=True)])
    read = rng.normal(size=(2, count, LAYER_DIMENSION))
    read[1] = np.where(first_only[:, 0], read[0], read[1])
    return weights, moved, *read, layer_tokens(rng, count, radius=0.5)


def _two_networks(weights: Any, moved: Any, read: Any, other: Any, tokens: Any) -> tuple:
    readouts = (attention.TokenReadout(each) for each in (read, other))
    return relu_network(weights), relu_network(moved), *readouts, tokens


CLAIMS = (
    Claim(
        id="S-lemma-4.3",
        title="a head moves no more than its scores and values",
        statement="The change of a head is bounded by the change of its scores and of its values, "
        "with C_Norm = 1 for softmax, where 2 is printed.",
        formula=r"‖f − \hat{f}‖ ≤ C_{Norm} L_{out} B_{in} B_X ‖Score − \hat{Score}‖_∞ + L_{out} "
        r"‖φ_{in} − \hat{φ}_{in}‖_{2,∞}",
        measure=Ratio(
            "finetti.attention.lipschitz.head_perturbation",
            draw=_draw_heads,
            arguments=_two_heads,
            tight={
                "two tokens, scores moved": partial(_moved_heads, 1e-3, 1.0, 2),
                "one token, values moved": partial(_moved_heads, 0.0, 1.1, 1),
            },
        ),
    ),
    Claim(
        id="S-lemma-A.13",
        title="attention moves no more than its weights",
        statement="The change of attention is bounded by the change of its weights, for tokens of "
        "length at most r and M = W_QW_Kᵀ. Printed for r = 1 with a factor of 2.",
        formula=r"‖f(Z;W) − f(Z;\hat{W})‖_{2,∞} ≤ ‖W_V‖ r^2 ‖(M − \hat{M}) Z^⊤‖_{2,∞} + ‖(W_V − "
        r"\hat{W}_V)^⊤ Z^⊤‖_{2,∞}",
        measure=Ratio(
            "finetti.attention.lipschitz.attention_weight_perturbation",
            draw=_draw_layers,
            arguments=lambda tokens, one, other: (relu_layer(one), relu_layer(other), tokens),
            tight={f"tokens of length {r:g}": partial(_leaving_zero, r) for r in (1.0, 2.0)},
        ),
    ),
    Claim(
        id="S-lemma-A.14",
        title="attention moves no more than its tokens, times 1 + 2‖M‖",
        statement="The change of attention is bounded by the change of its tokens, of length at "
        "most r, M = W_QW_Kᵀ. Printed for r = 1 with 4‖M‖ in the place of 2‖M‖.",
        formula=r"‖f(Z;W) − f(\hat{Z};W)‖_{2,∞} ≤ ‖W_V‖ (1 + 2 ‖M‖ r^2) ‖Z − \hat{Z}‖_{2,∞}",
        measure=Ratio(
            "finetti.attention.lipschitz.attention_token_perturbation",
            draw=_draw_layer_and_tokens,
            arguments=lambda weights, tokens, other: (relu_layer(weights), tokens, other),
            tight={"‖M‖ = 50": _even_layer},
        ),
    ),
    Claim(
        id="S-lemma-A.15",
        title="a layer moves no more than its weights and tokens",
        statement="A layer multiplies a deviation of its tokens by at most a constant of its "
        "norms, and adds what its own weights move.",
        formula="‖Δg^{(i+1)}‖ ≤ ‖ΔW_C^⊤ σ(Πf)^⊤‖ + L_σ B_C B_V (1 + 2 B_{QK} r^2) ‖Δg‖ + L_σ B_C "
        r"B_V r^2 ‖ΔM \hat{g}^⊤‖ + L_σ B_C ‖ΔW_V^⊤ \hat{g}^⊤‖",
        measure=Ratio(
            "finetti.attention.lipschitz.layer_perturbation",
            draw=_draw_layers_and_tokens,
            arguments=lambda tokens, moved, one, other: (
                relu_layer(one),
                relu_layer(other),
                tokens,
                moved,
            ),
            tight={"‖M‖ = 50": _even_layers},
        ),
    ),
    Claim(
        id="S-lemma-A.16",
        title="the output moves no more than its token",
        statement="The change of the output is bounded by the changes of its token and of w.",
        formula=r"|w^⊤ g − \hat{w}^⊤ \hat{g}| ≤ ‖w‖ ‖g − \hat{g}‖ + |(w − \hat{w})^⊤ \hat{g}|",
        measure=Ratio(
            "finetti.attention.lipschitz.readout_perturbation",
            draw=_draw_readouts,
            arguments=lambda one, other, tokens, moved: (
                attention.TokenReadout(one),
                attention.TokenReadout(other),
                tokens,
                moved,
            ),
            tight={"the token moves along w": _along_readout},
        ),
    ),
    Claim(
        id="S-thm-A.17-chain",
        title="a layer's error is amplified by the layers after it",
        statement="The change of the output is at most the sum of the errors e_i of the layers, "
        "each multiplied by the layers after it, and the change of the read-out.",
        formula=r"|out − \hat{out}| ≤ ‖w‖ Σ_i e_i ∏_{j>i} p_j + |(w − \hat{w})^⊤ \hat{g}|,  "
        "p_j = L_σ B_C B_V (1 + 2 B_{QK} r_j^2)",
        erratum=Erratum(
            2,
            title="printed: the layers before a layer amplify its error",
            printed=r"|out − \hat{out}| ≤ Σ_i e_i ∏_{j<i} p_j + |(w − \hat{w})^⊤ \hat{g}|",
            why="The recursion of Lemma A.15 multiplies the error of layer i by the layers after "
            "it, and the output by ‖w‖.",
        ),
        measure=Ratio(
            "finetti.attention.lipschitz.network_perturbation",
            draw=tuple(partial(_draw_networks, depth) for depth in (1, 2, 3, 4)),
            arguments=_two_networks,
            tight={"two layers, W_C of the first moved": two_layers},
        ),
    ),
)

_DEPTH, _NETWORKS = 8, 500


def _nearer(diameter: float) -> float:
    """D·tanh(D²/4): how far apart tokens that were D apart can be after a layer of unit norms.

    Two queries D apart see scores that differ by up to D², up to a constant D²/2 either way; their
    weights differ by 2 tanh(D²/4) in ℓ1 (Corollary A.7), and half of that times D is the distance.
    """
    return diameter * math.tanh(diameter**2 / 4)


def _amplified(depth: int) -> float:
    """Π_i (1 + D_i/2·(1 + D_i/2)), D_1 = 2: what ``depth`` layers of unit norms multiply by.

    A deviation ε moves the values by ε, and the weights by a covariance: the scores' standard
    deviation, at most ε(1 + D/2), times that of the values, at most D/2.
    """
    total, diameter = 1.0, 2.0
    for _ in range(depth):
        total *= 1 + diameter / 2 * (1 + diameter / 2)
        diameter = _nearer(diameter)
    return total


@claim(
    id="S-thm-4.6-depth",
    title="unit spectral norms avoid the exponential in the depth",
    statement="If the spectral norms of W_V, W_QK, W_C and L_σ are at most 1, layers bring tokens "
    "together, and multiply a deviation of the tokens by less than 11.7 in all, at any depth.",
    formula=r"D ↦ D tanh(\frac{D^2}{4}),  ∏_i p_i < 11.7",
    label="Theorem 4.6, the remark after it (the proof is ours)",
    check=CheckMethod.TIGHT,
    rejects="distances that are 1e-9 off, a product that is 0.01 off",
)
def s_thm_4_6_depth(context: Context) -> Evidence:
    """Distances between tokens and amplification of deviations, layer by layer, norms at most 1.

    The distances are sharp, on the tokens ±e₁; the product is an upper bound that is not.
    """
    import jax
    import jax.numpy as jnp

    def moved(tokens: Any, step: Any, weights: Any) -> Any:
        def onward(tokens: Any) -> Any:
            states = [tokens]
            for each in weights:
                unit = [w / jnp.maximum(1.0, jnp.linalg.norm(w, 2)) for w in each]
                states.append(relu_layer(unit)(states[-1]))
            return jnp.stack(states)

        states, slopes = jax.jvp(onward, (tokens,), (step,))
        apart = jnp.linalg.norm(states[:, :, None] - states[:, None], axis=-1).max((1, 2))
        return apart, jnp.linalg.norm(slopes, axis=-1).max(-1)

    rng = context.draws()
    tokens, steps = (layer_tokens(rng, _NETWORKS, radius=1.0) for _ in range(2))
    weights = [layer_weights(rng, _NETWORKS) for _ in range(_DEPTH)]
    apart, slopes = (np.asarray(each) for each in vmap_jit(moved, tokens, steps, weights))
    distance = apart[:, 1:] / np.maximum(apart[:, :-1] * np.tanh(apart[:, :-1] ** 2 / 4), 1e-12)
    limits = [_amplified(depth) for depth in range(1, _DEPTH + 1)]
    growth = slopes[:, 1:] / slopes[:, :1] / limits
    opposite, diameters = two_tokens(), [2.0]
    for _ in range(4):
        opposite = np.asarray(layer(first_axis(1.0))(opposite))
        diameters.append(float(np.linalg.norm(opposite[0] - opposite[1])))
    miss = largest_of(abs(after / _nearer(before) - 1) for before, after in pairwise(diameters))
    # 2 → 1.5232 → 0.7963 → 0.1252 → 0.0005: 3 · 2.3416 · 1.5567 · 1.0665 · 1.0002
    return Evidence(
        close("±e₁: largest |distance / D tanh(D²/4) − 1|", miss, RATIO_RTOL),
        close("1000 layers multiply by 11.66, minus that", _amplified(1000) - 11.66, 0.01),
        ratios_at_most_one(distance, "layers: distance / D tanh(D²/4)"),
        ratios_at_most_one(growth, "depths: amplification / product"),
        note="Lemma A.14 alone gives 3 for every layer (5 with the printed constant): the remark "
        "does not follow from Theorem A.17, but it is true.",
    )
