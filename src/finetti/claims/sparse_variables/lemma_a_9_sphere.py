"""What Lemma A.9 is not about: dividing by the length, and LayerNorm."""

import numpy as np

from finetti.claims.claim import Claim, Context, Control, Evidence, at_most, close, within
from finetti.claims.perturbations import ROUNDING, sizes
from finetti.claims.sparse_variables.lemma_a_9 import pairs, sphere, stretched

EPSILON, WIDTH = 1e-5, 4


def measure(context: Context, constant: float) -> Evidence:
    """Short tokens on the sphere, and LayerNorm against ``constant``·max|gain|/√ε."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    rng = context.generator(CLAIM.id)
    gain = rng.uniform(0.5, 2, size=WIDTH)
    normalize = eqx.tree_at(
        lambda norm: norm.weight, eqx.nn.LayerNorm(WIDTH, eps=EPSILON), jnp.asarray(gain)
    )
    plain = eqx.nn.LayerNorm(WIDTH, eps=EPSILON)
    limit = constant * gain.max() / EPSILON**0.5
    found = stretched(*pairs(context, CLAIM.id), jax.vmap(normalize))
    # Tokens whose coordinates are nearly equal: there the length that LayerNorm divides by is √ε.
    still, step = np.ones((1, WIDTH)), 1e-6 * np.array([[1.0, -1.0, 0.0, 0.0]])
    flat = stretched(still, still + step, jax.vmap(plain))[0]
    short = sizes(rng, -3, -1, 100)[:, 0] * np.array([[1.0, 0.0]])
    lengths = np.abs(short).sum(axis=1)
    torn = stretched(short, short + 1e-9 * np.array([[0.0, 1.0]]), sphere)
    return Evidence(
        (
            close(
                "sphere: stretch of short tokens times their length, minus 1",
                np.abs(torn * lengths - 1).max(),
                1e-5,
            ),
            at_most(
                "LayerNorm: largest stretch / (max|gain|/√ε)", found.max() / limit, 1 + ROUNDING
            ),
            within(
                "LayerNorm at equal coordinates / (1/√ε)",
                flat / (constant / EPSILON**0.5),
                0.98,
                1 + ROUNDING,
            ),
        ),
        note=f"1/√ε is {EPSILON**-0.5:.3g} at ε = 1e-5.",
    )


def run(context: Context) -> Evidence:
    """How far dividing by the length and LayerNorm move tokens apart."""
    return measure(context, 1.0)


CLAIM = Claim(
    id="S-lemma-A.9-sphere",
    title="neither dividing by the length nor LayerNorm is a contraction",
    statement="Dividing by the length tears tokens of length r apart by 1/r; LayerNorm with ε is "
    "max|gain|/√ε-Lipschitz, and no better.",
    paper="S",
    label="Lemma A.9 (the paper projects onto the ball; this is ours)",
    run=run,
    controls=(
        Control("LayerNorm as a contraction", lambda context: measure(context, EPSILON**0.5)),
    ),
)
