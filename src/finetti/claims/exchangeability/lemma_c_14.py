"""Lemma C.14, corrected: how far the deep network moves with its weights."""

from typing import Any

import numpy as np

from finetti.attention import lipschitz
from finetti.claims.claim import Claim, Context, Evidence
from finetti.claims.exchangeability import instances
from finetti.claims.perturbations import DRAWS, attained, holds, nearby

DEPTHS = (1, 2, 3)


def network(layers: Any) -> Any:
    """(A^x, A^σ, W_q, W_k, W_v) of each layer → the network with skips."""
    from finetti.attention.networks.feed_forward import FeedForward
    from finetti.attention.networks.residual_transformer import ResidualLayer, ResidualTransformer

    return ResidualTransformer(
        [ResidualLayer(FeedForward(*layer[:2]), instances.heads(*layer[2:])) for layer in layers]
    )


def amplified(growth: float, step: float) -> tuple[Any, Any, np.ndarray]:
    """The instance of Lemma C.11 behind a feed-forward part that makes tokens ``growth`` longer."""
    first, second, tokens = instances.even_reader(1.0, step, copies=200)
    inner = np.hstack([instances.AXES, -instances.AXES])
    # ReLU(x)·c − ReLU(−x)·c = cx, and the skip adds x.
    outer = (growth - 1) / 2 * inner.T
    pair = (
        network([(inner, outer, heads.query_weights, heads.key_weights, heads.value_weights)])
        for heads in (first, second)
    )
    return *pair, tokens


def run(context: Context) -> Evidence:
    """Both sides on random pairs of networks of 1 to 3 layers, and on a tight layer."""
    import jax

    def lemma(tokens, layers, moved):
        return lipschitz.residual_perturbation(network(layers), network(moved), tokens).ratio

    found = []
    for depth in DEPTHS:
        rng = context.generator(CLAIM.id, depth)
        count = DRAWS // len(DEPTHS) + 1
        layers, moved = [], []
        for _ in range(depth):
            shapes = ((instances.DIMENSION, 6), (6, instances.DIMENSION))
            inner = [0.3 * rng.normal(size=(count, *shape)) for shape in shapes]
            layers.append([*inner, *instances.weights(rng, count)])
            moved.append(nearby(rng, layers[-1]))
        tokens = instances.tokens(rng, count)
        found.append(np.asarray(jax.jit(jax.vmap(lemma))(tokens, layers, moved)))
    # Without growth the feed-forward part is the skip alone.
    tight = lipschitz.residual_perturbation(*amplified(1.0, 1e-4))
    return Evidence(
        (holds(np.concatenate(found), "networks"), attained("one layer, keys moved", tight)),
        note=f"The median ratio is {np.median(np.concatenate(found)):.2g}: the chain is very loose "
        "on random networks.",
    )


CLAIM = Claim(
    id="E-lemma-C.14",
    title="a deep network moves no more than the chain allows",
    statement="‖X_T − X̂_T‖_{2,∞} ≤ Σ_t (ρ̃_t ε_{t,a} + ε_{t,w}) Π_{τ>t} ρ̃_τ α̃_τ, with ε_{t,w} of "
    "the corrected Lemma C.11 and tokens as long as α̃_tR_t inside layer t.",
    paper="E",
    label="Lemma C.14",
    run=run,
)
