"""Theorem A.17: the capacity of a deep Transformer."""

import math

import numpy as np

from finetti.claims.claim import Claim, Context, Evidence, close
from finetti.claims.sparse_variables import draws
from finetti.claims.sparse_variables.packing import covered, log_packing

NETWORKS, LAYERS, SEQUENCES, RESOLUTION = 200, 2, 3, 0.1


def run(context: Context) -> Evidence:
    """The bound against a packing of random networks in one class; its steps per decade of T."""
    import jax

    from finetti.attention.networks.projected_transformer import ProjectedTransformer
    from finetti.bounds import Sample
    from finetti.bounds.sparse_variables import LayerNorms, TransformerClass, TransformerCovering

    rng = context.generator(CLAIM.id)
    tokens = draws.tokens(rng, SEQUENCES, radius=1.0)
    layers = [draws.weights(rng, NETWORKS, spread=0.3) for _ in range(LAYERS)]
    readouts = rng.normal(size=(NETWORKS, draws.DIMENSION))

    @jax.vmap
    def outputs(weights, readout):
        network = ProjectedTransformer([draws.build(*layer) for layer in weights])
        return network(tokens)[:, 0] @ readout

    found = np.asarray(jax.jit(outputs)(layers, readouts))[..., None]
    names, norms = LayerNorms.__dataclass_fields__, []
    for query, key, value, output in layers:
        scores = query @ key.swapaxes(1, 2)
        spectral = [np.linalg.norm(each, 2, axis=(1, 2)).max() for each in (output, value, scores)]
        columns = [np.linalg.norm(each, axis=1).max() for each in (output, value)]
        rows = np.linalg.norm(scores, axis=2).max()
        norms.append(LayerNorms(**dict(zip(names, (*spectral, *columns, rows), strict=True))))
    network = TransformerClass(
        layers=tuple(norms),
        width=draws.DIMENSION,
        head_dimension=draws.WIDTH,
        readout_norm=float(np.linalg.norm(readouts, axis=1).max()),
    )
    bound = TransformerCovering(network, RESOLUTION)
    sample = Sample(SEQUENCES, draws.TOKENS - 1)
    packing = log_packing(found, 2 * RESOLUTION)
    values = [bound.evaluate(Sample(1000, 10**k - 1)).value for k in range(2, 9)]
    steps = np.diff(values)
    shares = math.fsum(term.share or 0.0 for term in bound.evaluate(sample).terms)
    return Evidence(
        (
            covered(f"{NETWORKS} random networks", packing, bound.evaluate(sample).value),
            close("spread of the steps per decade of T", np.ptp(steps) / steps.mean(), 1e-6),
            close("shares of all matrices add up to 1", shares - 1, 1e-12),
        ),
        note=f"{math.exp(packing):.0f} of the networks are pairwise farther apart than 2ε. "
        "S-thm-A.17-chain checks the inequality that the cover rests on.",
    )


CLAIM = Claim(
    id="S-thm-A.17",
    title="the capacity of a deep Transformer",
    statement="Networks of L projected layers have log N_∞ ≤ 36(γ²/ε²) Σ_j c_j^{2/3} log(…N + 1) "
    "over all matrices of all layers, each cost multiplied by the layers after it; it is affine in "
    "the logarithm of the context length.",
    paper="S",
    label="Theorem A.17",
    run=run,
)
