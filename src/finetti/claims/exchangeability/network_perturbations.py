"""Lemma C.14: how far a deep network moves."""

from typing import Any

import numpy as np

from finetti import attention
from finetti.attention import lipschitz
from finetti.claims.claim import Context, Control, claim
from finetti.claims.evidence import Evidence, Measurement, at_most, within
from finetti.claims.exchangeability import instances
from finetti.claims.perturbations import DRAWS, attained, holds, nearby, ratios
from finetti.core.forms import Form


def network(layers: Any) -> Any:
    """(A^x, A^σ, W_q, W_k, W_v) of each layer → the network with skips."""
    return attention.ResidualTransformer(
        [
            attention.ResidualLayer(attention.FeedForward(*layer[:2]), instances.heads(*layer[2:]))
            for layer in layers
        ]
    )


def amplified(growth: float, step: float) -> tuple[Any, Any, np.ndarray]:
    """The instance of Lemma C.11 behind a feed-forward part with α̃ = ``growth``.

    It makes tokens (1 + ``growth``)/2 times as long: a ReLU for either sign costs a factor of 2.
    """
    first, second, tokens = instances.even_reader(1.0, step, copies=200)
    inner = np.hstack([instances.AXES, -instances.AXES])
    # ReLU(x)·c − ReLU(−x)·c = cx, and the skip adds x.
    outer = (growth - 1) / 2 * inner.T
    pair = (
        network([(inner, outer, heads.query_weights, heads.key_weights, heads.value_weights)])
        for heads in (first, second)
    )
    return *pair, tokens


def _three_layers(step: float, form: Form = "derived") -> Any:
    """One token e₁ that all parts of three layers lengthen, while their A^σ and W_v grow.

    With W_q = W_k = 0 nothing is lost: ρ̃_t = ω̃_t, and every summand of the chain is attained.
    """
    axis, along = instances.AXES[:1], instances.FIRST[None]
    before, after = (
        network(
            [
                (axis.T, (outer + move) * axis, 0 * along, 0 * along, (value + move) * along)
                for outer, value in ((9.0, 1.0), (0.5, 3.0), (2.0, 0.2))
            ]
        )
        for move in (0.0, step)
    )
    return lipschitz.residual_perturbation(before, after, axis, form)


def _tight(form: Form = "derived") -> tuple[Measurement, ...]:
    """The chain of three layers, heads behind the skip alone, and heads that read longer tokens."""
    # Without growth the feed-forward part is the skip alone.
    keys = lipschitz.residual_perturbation(*amplified(1.0, 1e-4), form)
    longer = lipschitz.residual_perturbation(*amplified(10.0, 1e-6), form)
    return (
        attained("three layers, A^σ and W_v moved", _three_layers(1e-6, form)),
        attained("one layer, keys moved", keys),
        # (11/20)³ = 0.166: α̃ = 10 against tokens that grow 5.5-fold, to the third power.
        within("α̃ = 10 before it", longer.ratio, 0.163, 0.167),
    )


@claim(
    id="E-lemma-C.14",
    title="a deep network moves no more than the chain allows",
    statement="‖X_T − X̂_T‖_{2,∞} ≤ Σ_t (ρ̃_t ε_{t,a} + ε_{t,w}) Π_{τ>t} ρ̃_τ α̃_τ, with ε_{t,w} of "
    "the corrected Lemma C.11 and tokens as long as α̃_tR_t inside layer t.",
    # The first instance has no scores: there the printed chain lacks α̃ and nothing else.
    controls=(Control("without α̃, as printed", lambda context: Evidence(*_tight("printed"))),),
)
def e_lemma_c_14(context: Context) -> Evidence:
    """Both sides on random networks of 1 to 3 layers, and where the parts of the chain are tight.

    One token that everything lengthens attains the chain of α̃, ω̃ and R in three layers; keys that
    move attain Lemma C.11 in one; behind a feed-forward part that is a sixth of the bound.
    """
    depths = (1, 2, 3)

    def lemma(tokens, layers, moved):
        return lipschitz.residual_perturbation(network(layers), network(moved), tokens)

    found = []
    for depth in depths:
        rng = context.generator(e_lemma_c_14.id, depth)
        count = DRAWS // len(depths) + 1
        layers, moved = [], []
        for _ in range(depth):
            shapes = ((instances.DIMENSION, 6), (6, instances.DIMENSION))
            inner = [0.3 * rng.normal(size=(count, *shape)) for shape in shapes]
            layers.append([*inner, *instances.weights(rng, count)])
            moved.append(nearby(rng, layers[-1]))
        tokens = instances.tokens(rng, count)
        found.append(ratios(lemma, tokens, layers, moved))
    return Evidence(
        holds(np.concatenate(found), "networks"),
        *_tight(),
        note=f"The median ratio is {np.median(np.concatenate(found)):.2g}: the chain is very loose "
        "on random networks.",
    )


@claim(
    id="E-erratum-6",
    title="printed: heads read tokens of length R_t",
    statement="The chain of Lemma C.14 with R_t in ρ̃_t and R_t^mha.",
    label="(C.10), (C.11), Lemma C.14",
    erratum="The heads of layer t read X̄_t, which is as long as α̃_tR_t; and the product in "
    "R_T^trans must start at τ = t. Both only move constants inside a logarithm of the theorem.",
)
def e_erratum_6(context: Context) -> Evidence:
    """A feed-forward part with α̃ = 10, then the tight instance of Lemma C.11 with ω_v = 1."""
    instance = amplified(10.0, 1e-6)
    printed = lipschitz.residual_perturbation(*instance, "printed")
    derived = lipschitz.residual_perturbation(*instance)
    return Evidence(
        at_most("change of the tokens", printed.measured, printed.bound),
        # The tokens grow 5.5-fold where α̃ = 10: (11/20)³ = 0.166 of the bound.
        derived=(within("the same over the bound with α̃_tR_t", derived.ratio, 0.163, 0.167),),
    )
