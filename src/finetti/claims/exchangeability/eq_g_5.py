"""(G.5), corrected: the product of Lemma C.8 in the three scales of Theorem C.4."""

import numpy as np

from finetti.bounds import exchangeability as bounds
from finetti.claims.claim import Claim, Context, Evidence, at_most


def draw_network(rng: np.random.Generator) -> "bounds.FullTransformer":
    """Up to 12 layers with two heads, all norms over four decades."""
    depth = int(rng.integers(1, 13))
    layers = []
    for row in (10.0 ** rng.uniform(-2, 2, size=(depth, 16))).tolist():
        heads = bounds.HeadNorms(*row[:6]), bounds.HeadNorms(*row[6:12])
        layers.append(bounds.LayerNorms(heads, *row[12:]))
    return bounds.FullTransformer(4, 4, 2, tuple(layers))


def log_product(network: "bounds.FullTransformer", radius: float) -> float:
    """log R_T^trans R_T, as Lemma C.14 gives it."""
    from finetti.bounds.exchangeability.chain import Rule, log_deviation

    return log_deviation(network, radius, Rule.of(network, "derived", sharp=False))[0]


def run(context: Context) -> Evidence:
    """log(R_T^trans R_T) minus its limit on random networks and inputs."""
    rng = context.generator(CLAIM.id)
    excess = []
    for _ in range(context.pick(quick=500, paper=5_000)):
        network, radius = draw_network(rng), float(10.0 ** rng.uniform(-2, 2))
        limit = bounds.log_product_limit(network, radius)
        excess.append(log_product(network, radius) - limit)
    count = len(excess)
    return Evidence(
        (at_most(f"largest log(product / limit) on {count} networks", max(excess), 1e-9),)
    )


CLAIM = Claim(
    id="E-eq-G.5",
    title="the product of all layers, in γ, κ and ζ",
    statement="R_T^trans R_T ≤ (2κ/√ζ)√T(1 + ζR_0²(1+γ)^{4T})^{T+1}, with κ and ζ as the proof "
    "needs them.",
    paper="E",
    label="(G.5)",
    run=run,
)
