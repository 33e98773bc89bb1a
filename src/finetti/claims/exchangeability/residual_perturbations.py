"""(C.6), Lemmas F.1 and C.10 to C.14: how far tokens, heads and deep networks move."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from finetti import attention, core
from finetti.attention import lipschitz
from finetti.claims.claim import CheckMethod, Claim, Context, Erratum, claim
from finetti.claims.evidence import Evidence
from finetti.claims.measures import (
    DRAWS,
    Ratio,
    is_tight,
    log_uniform_scales,
    perturbed_copies,
    ratio,
    ratios,
    ratios_at_most_one,
)

DIMENSION = 4
AXES = np.eye(DIMENSION)
FIRST = np.outer(AXES[0], AXES[0])  # e₁e₁ᵀ
N_HEADS, TOKENS, WIDTH, HIDDEN = 2, 5, 2, 6


def heads(query: Any, key: Any, value: Any) -> Any:
    """Heads with RBF-form softmax attention, σ² = 2√d_p."""
    return attention.MultiHead(query, key, value, attention=attention.rbf_attention(key.shape[-1]))


def network(layers: Any) -> Any:
    """(A^x, A^σ, W_q, W_k, W_v) of each layer → the network with skips."""
    return attention.ResidualTransformer(
        [
            attention.ResidualLayer(attention.FeedForward(*layer[:2]), heads(*layer[2:]))
            for layer in layers
        ]
    )


def draw_heads(rng: np.random.Generator, count: int) -> list[np.ndarray]:
    """W_q, W_k, W_v of two heads, with sizes over two decades."""
    return [
        log_uniform_scales(rng, -1.5, 0.5, count, 1)
        * rng.normal(size=(count, N_HEADS, DIMENSION, width))
        for width in (WIDTH, WIDTH, DIMENSION)
    ]


def draw_layer(rng: np.random.Generator, count: int) -> list[np.ndarray]:
    """The same after A^x and A^σ."""
    shapes = ((DIMENSION, HIDDEN), (HIDDEN, DIMENSION))
    return [*(0.3 * rng.normal(size=(count, *each)) for each in shapes), *draw_heads(rng, count)]


def draw_tokens(rng: np.random.Generator, count: int) -> np.ndarray:
    """Sequences of tokens, short and long."""
    return log_uniform_scales(rng, -1, 0.5, count) * rng.normal(size=(count, TOKENS, DIMENSION))


def even_reader(
    value_norm: float, step: float, copies: int = 40, *, moved: str = "keys", equal: int = 1
) -> tuple[Any, Any, np.ndarray]:
    """W, Ŵ and X: a query e₂ reads n tokens e₁ and n tokens −e₁ evenly, until W_k leaves 0.

    The same with W_q, where the ``moved`` are "queries"; there are ``equal`` equal heads.
    """
    query, key = np.outer(AXES[1], AXES[0])[None], FIRST[None]
    value = value_norm * AXES[None]
    pair = (
        (query, size * key, value) if moved == "keys" else (size * query, key, value)
        for size in (0.0, step)
    )
    both = (heads(*(np.repeat(each, equal, axis=0) for each in weights)) for weights in pair)
    signs = np.repeat([1.0, -1.0], copies)[:, None]
    return *both, np.vstack([signs * AXES[0], AXES[1]])


@claim(
    id="E-lemma-F.1",
    title="RBF-form softmax moves no more than query and keys",
    statement="The weights of RBF-form softmax move no more than query and keys, times a constant "
    "that is sharp for any bandwidth, and at most 1/2 at the printed σ² = 2d_p^{1/s}.",
    formula=r"‖softmax(q,K) − softmax(\hat{q},\hat{K})‖_1 ≤ c (‖q‖_r + ‖K‖_{r,∞}) ‖K − "
    r"\hat{K}‖_{r,∞} + c ‖K‖_{r,∞} ‖q − \hat{q}‖_r,  c = σ^{-2} d_p^{max(0, 1−2/r)}",
    check=CheckMethod.TIGHT,
    rejects="a bound larger or smaller by a factor of 1.021",
)
def e_lemma_f_1(context: Context) -> Evidence:
    """Both sides for four norms and any bandwidth, and on keys that move apart."""
    exponents = (1.0, 2.0, 4.0, np.inf)
    measurements = []
    for r in exponents:
        lemma = partial(lipschitz.rbf_softmax_perturbation, r=r)
        rng, count = context.draws(str(r)), DRAWS // len(exponents)
        tokens = log_uniform_scales(rng, -1, 1, count) * rng.normal(size=(count, 7, 4))
        moved = tokens + log_uniform_scales(rng, -4, 0, count) * rng.normal(size=(count, 7, 4))
        width = 10.0 ** rng.uniform(-1, 2, size=count)
        found = ratios(lemma, tokens[:, 0], tokens[:, 1:], moved[:, 0], moved[:, 1:], width)
        measurements.append(ratios_at_most_one(found, f"draws, r = {r:g}"))
        # Hölder is an equality along e₁ for r ≤ 2, along (1, …, 1) for r > 2.
        along = np.ones(4) if r > 2 else np.eye(4)[0]
        step, signs = 1e-5, np.array([[1.0], [-1.0]])
        keys = -along[None] * np.ones((2, 1))
        apart = along, keys, along, keys + step * signs * along, 3.0
        measurements.append(is_tight(f"keys moved apart, r = {r:g}", ratio(lemma, *apart)))
        turned = 0 * along, signs * along, step * along, signs * along, 3.0
        measurements.append(is_tight(f"query moved, r = {r:g}", ratio(lemma, *turned)))
    return Evidence(*measurements, note="Bandwidths σ² from 0.1 to 100; the paper has 2d_p^{1/s}.")


def _draw_head_pairs(rng: np.random.Generator) -> tuple:
    weights = draw_heads(rng, DRAWS)
    tokens = draw_tokens(rng, DRAWS)
    return weights, perturbed_copies(rng, weights), tokens


def _longer_reader(moved: str) -> tuple:
    """Two equal heads and tokens of length 3, so that the sum and powers of R are seen."""
    one, other, tokens = even_reader(10.0, 1e-5, copies=200, moved=moved, equal=2)
    return one, other, 3 * tokens


def _moving_values() -> tuple:
    none, one = 0 * AXES[None], AXES[None]
    return *(heads(none, none, size * one) for size in (1.0, 1.2)), 3 * AXES[:1]


e_lemma_c_11 = Claim(
    id="E-lemma-C.11",
    title="heads move no more than their weights",
    statement="The change of the heads is bounded by the change of their weights: the lemma with "
    "the ω_v of its proof.",
    formula=r"‖MHA(X;W) − MHA(X;\hat{W})‖_{2,∞} ≤ R Σ_i ε_v^i + σ^{-2} R^3 Σ_i ω_v^i (ω_q^i + "
    "ω_k^i)(ε_q^i + ε_k^i)",
    erratum=Erratum(
        5,
        title="printed: Lemma C.11 without the values' norm",
        printed=r"‖MHA(X;W) − MHA(X;\hat{W})‖ ≤ R Σ_i ε_v^i + R^3 Σ_i (ω_q^i + ω_k^i)(ε_q^i + "
        "ε_k^i)",
        why="(F.10)–(F.11) contain ω_v in the second sum; print drops it, also in Lemma C.12, "
        "(C.10) and the third entry of κ.",
    ),
    measure=Ratio(
        "finetti.attention.lipschitz.heads_weight_perturbation",
        draw=_draw_head_pairs,
        arguments=lambda one, other, tokens: (heads(*one), heads(*other), tokens),
        # A query reads opposite tokens evenly, until keys or queries leave 0.
        tight={
            "keys moved, ω_v = 10, R = 3": lambda: _longer_reader("keys"),
            "queries moved, ω_v = 10, R = 3": lambda: _longer_reader("queries"),
            "values moved": _moving_values,
        },
        fails_at=("keys moved, ω_v = 10, R = 3", "queries moved, ω_v = 10, R = 3"),
    ),
)


def _draw_moving_tokens(rng: np.random.Generator) -> tuple:
    tokens = draw_tokens(rng, DRAWS)
    return tokens, *perturbed_copies(rng, [tokens]), draw_heads(rng, DRAWS)


def _opposite_tokens(key_norm: float) -> tuple:
    """Two equal heads that read tokens ±3e₁, which move the same way."""
    weights = (size * np.stack([AXES] * 2) for size in (0.0, key_norm, 10.0))
    tokens = 3 * AXES[:1] * [[1.0], [-1.0]]
    return heads(*weights), tokens, tokens + 1e-7 * AXES[0]


e_lemma_c_13 = Claim(
    id="E-lemma-C.13",
    title="heads move no more than their tokens, times ρ",
    statement="The change of the heads is bounded by the change of their tokens.",
    formula=r"‖MHA(X;W) − MHA(\hat{X};W)‖_{2,∞} ≤ (Σ_i ω_v^i + σ^{-2} R^2 Σ_i (ω_q^i + ω_k^i)^2 "
    r"ω_v^i) ‖X − \hat{X}‖_{2,∞}",
    measure=Ratio(
        "finetti.attention.lipschitz.heads_token_perturbation",
        draw=_draw_moving_tokens,
        arguments=lambda tokens, other, weights: (heads(*weights), tokens, other),
        tight={
            "ω_k = 40, ω_q = 0, ω_v = 10, R = 3": lambda: _opposite_tokens(40.0),
            # Without scores the heads take means, and a common change passes ω_v times.
            "ω_k = 0, ω_q = 0, ω_v = 10, R = 3": lambda: _opposite_tokens(0.0),
        },
    ),
)


def amplified(growth: float, step: float) -> tuple[Any, Any, np.ndarray]:
    """The instance of Lemma C.11 behind a feed-forward part with α̃ = ``growth``.

    It makes tokens (1 + ``growth``)/2 times as long: a ReLU for either sign costs a factor of 2.
    """
    first, second, tokens = even_reader(1.0, step, copies=200)
    inner = np.hstack([AXES, -AXES])
    # ReLU(x)·c − ReLU(−x)·c = cx, and the skip adds x.
    outer = (growth - 1) / 2 * inner.T
    pair = (
        network([(inner, outer, each.query_weights, each.key_weights, each.value_weights)])
        for each in (first, second)
    )
    return *pair, tokens


def lengthening(step: float = 0.0) -> list[tuple]:
    """Three layers all parts of which lengthen a token e₁, more by ``step`` in A^σ and W_v.

    With W_q = W_k = 0 nothing is lost: ρ̃_t = ω̃_t, and every summand of the chain is attained.
    """
    axis, along = AXES[:1], FIRST[None]
    return [
        (axis.T, (outer + step) * axis, 0 * along, 0 * along, (value + step) * along)
        for outer, value in ((9.0, 1.0), (0.5, 3.0), (2.0, 0.2))
    ]


def _draw_networks(depth: int, rng: np.random.Generator) -> tuple:
    count, layers, moved = DRAWS // 3 + 1, [], []
    for _ in range(depth):
        layers.append(draw_layer(rng, count))
        moved.append(perturbed_copies(rng, layers[-1]))
    return layers, moved, draw_tokens(rng, count)


e_lemma_c_14 = Claim(
    id="E-lemma-C.14",
    title="a deep network moves no more than the chain allows",
    statement="The change of a deep network is bounded by a chain over its layers, with the "
    "corrected Lemma C.11 and tokens as long as α̃_tR_t inside layer t.",
    formula=r"‖X_T − \hat{X}_T‖_{2,∞} ≤ Σ_t (\tilde{ρ}_t ε_{t,a} + ε_{t,w}) ∏_{τ>t} \tilde{ρ}_τ "
    r"\tilde{α}_τ,  \tilde{ρ}_t = \tilde{ω}_t^v + σ^{-2} (\tilde{α}_t R_t)^2 Σ_i (ω_q^i + "
    "ω_k^i)^2 ω_v^i",
    erratum=Erratum(
        6,
        title="printed: heads read tokens of length R_t",
        formula=r"\tilde{ρ}_t = \tilde{ω}_t^v + (ω_t^{qk})^2 ω_t^v (\tilde{α}_t R_t)^2",
        printed=r"\tilde{ρ}_t = \tilde{ω}_t^v + (ω_t^{qk})^2 ω_t^v R_t^2",
        label="(C.10), (C.11), Lemma C.14",
        why="The heads of layer t read X̄_t, which is as long as α̃_tR_t; and the product in "
        "R_T^trans must start at τ = t. Both only move constants inside a logarithm of the "
        "theorem.",
    ),
    measure=Ratio(
        "finetti.attention.lipschitz.residual_perturbation",
        draw=tuple(partial(_draw_networks, depth) for depth in (1, 2, 3)),
        arguments=lambda layers, moved, tokens: (network(layers), network(moved), tokens),
        tight={
            "three layers, A^σ and W_v moved": lambda: (
                network(lengthening()),
                network(lengthening(1e-6)),
                AXES[:1],
            ),
            # Without growth the feed-forward part is the skip alone.
            "one layer, keys moved": lambda: amplified(1.0, 1e-4),
            "α̃ = 10 before it": lambda: amplified(10.0, 1e-6),
        },
        # (11/20)³ = 0.166: α̃ = 10 against tokens that grow 5.5-fold, to the third power.
        limits={"α̃ = 10 before it": (0.163, 0.167)},
        fails_at=("three layers, A^σ and W_v moved", "α̃ = 10 before it"),
        note="The chain is very loose on random networks.",
    ),
)


def _lengths(tokens: Any, layers: Any) -> Any:
    """The longest token after all layers over R_t, from the spectral norms of the layers."""
    inner = [1 + core.spectral(each[0]) * core.spectral(each[1]) for each in layers]
    outer = [1 + core.spectral(each[4]).sum() for each in layers]
    limit = lipschitz.residual_radii(core.sequence_norm(tokens), inner, outer)[-1]
    return SimpleNamespace(ratio=core.sequence_norm(network(layers)(tokens)) / limit)


def _draw_layers(rng: np.random.Generator) -> tuple:
    count = DRAWS // 10
    layers = [draw_layer(rng, count) for _ in range(3)]
    return draw_tokens(rng, count), layers


e_eq_c_6 = Claim(
    id="E-eq-C.6",
    title="tokens grow no faster than R_t",
    statement="Tokens are no longer than the product of what every part of the layers before them "
    "may lengthen.",
    formula=r"‖X_t‖_{2,∞} ≤ R_t = R_0 ∏_{τ<t} \tilde{ω}_τ^v \tilde{α}_τ,  \tilde{α} = 1 + α^x "
    r"α^σ,  \tilde{ω}^v = 1 + Σ_i ω_v^i",
    label="(C.6), (G.6)",
    measure=Ratio(
        _lengths,
        draw=_draw_layers,
        tight={"a token that all parts lengthen": lambda: (AXES[:1], lengthening())},
    ),
)


e_lemma_c_10 = Claim(
    id="E-lemma-C.10",
    title="a feed-forward part is covered by how far it moves",
    statement="The size in the covering number of a feed-forward part is how far it moves with its "
    "weights.",
    formula=r"log N ≤ 2 d d_σ log(1 + \frac{2 (α^x R^σ + α^σ R^x) ‖X‖_{r,∞}}{ε})",
    rests_on=("E-lemma-C.14", "F-cover-count"),
)


e_lemma_c_12 = Claim(
    id="E-lemma-C.12",
    title="the heads of a layer are covered by how far they move",
    statement="The size in the covering number of the heads is how far they move with their "
    "weights, with the ω_v that print drops (erratum 5).",
    formula=r"log N ≤ p log(1 + \frac{2 R R^{mha}}{ε}),  "
    r"R^{mha} = Σ_i R_v^i + c R^2 Σ_i ω_v^i (ω_q^i + ω_k^i)(R_q^i + R_k^i)",
    rests_on=("E-lemma-C.11", "F-cover-count"),
)
