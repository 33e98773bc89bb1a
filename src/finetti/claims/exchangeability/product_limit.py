"""(G.5): the product over the layers."""

import math
from typing import Any

import numpy as np

from finetti.bounds import exchangeability as bounds
from finetti.bounds.exchangeability.chain import ChainForm, log_deviation
from finetti.claims.claim import Context, Control, claim
from finetti.claims.evidence import Evidence, at_most, close
from finetti.claims.exchangeability import by_hand
from finetti.core.forms import Form


def draw_network(
    rng: np.random.Generator, depth: int = 12, decades: float = 2.0
) -> "bounds.FullTransformer":
    """Up to ``depth`` layers with two heads, all norms from 10^−``decades`` to 10^``decades``."""
    count, layers = int(rng.integers(1, depth + 1)), []
    for row in (10.0 ** rng.uniform(-decades, decades, size=(count, 16))).tolist():
        heads = bounds.FullHeadNorms(*row[:6]), bounds.FullHeadNorms(*row[6:12])
        layers.append(bounds.FullLayerNorms(heads, *row[12:]))
    return bounds.FullTransformer(4, 4, 2, tuple(layers))


def log_product(network: "bounds.FullTransformer", radius: float, form: Form = "derived") -> float:
    """log R_T^trans R_T, as Lemma C.14 gives it, or as it is printed."""
    return log_deviation(network, radius, ChainForm.of(network, form, sharp=False))[0]


def _limit_by_hand(network: "bounds.FullTransformer", radius: float) -> float:
    """The log of the limit."""
    (gamma, kappa, zeta), depth = by_hand.scales(network), len(network.layers)
    power = (depth + 1) * np.log1p(zeta * radius**2 * (1 + gamma) ** (4 * depth))
    return float(np.log(2 * kappa * np.sqrt(depth / zeta)) + power)


@claim(
    id="E-eq-G.5",
    title="the product of all layers, in γ, κ and ζ",
    statement="R_T^trans R_T ≤ (2κ/√ζ)√T(1 + ζR_0²(1+γ)^{4T})^{T+1}, with κ and ζ as the proof "
    "needs them.",
    controls=(Control("the limit divided by 4.4", changes={"divisor": 4.4}),),
)
def e_eq_g_5(context: Context, divisor: float = 1.0) -> Evidence:
    """The limit recomputed from all norms, and log(R_T^trans R_T) minus it, on random networks.

    The limit is loose, so only the recomputation sees a constant that is wrong.
    """

    def log_limit(network: Any, radius: float) -> float:
        return bounds.log_product_limit(network, radius) - np.log(divisor)

    rng = context.generator(e_eq_g_5.id)
    excess, errors = [], []
    for _ in range(context.pick(quick=500, paper=5_000)):
        network, radius = draw_network(rng), float(10.0 ** rng.uniform(-2, 2))
        limit = log_limit(network, radius)
        excess.append(log_product(network, radius) - limit)
        errors.append(abs(limit - _limit_by_hand(network, radius)))
    # All norms and R_0 are 1: γ = κ = 1 and ζ = 2, so 2/√2·(1 + 2·2⁴)².
    explicit = log_limit(bounds.FullTransformer.uniform(2), 1.0) - np.log(np.sqrt(2) * 33**2)
    count = len(excess)
    return Evidence(
        at_most(f"largest log(product / limit) on {count} networks", max(excess), 1e-9),
        close("limit − (2κ/√ζ)√T(1 + ζR_0²(1+γ)^{4T})^{T+1} by hand (log)", max(errors), 1e-9),
        close("all norms 1: limit − √2·33² (log)", explicit, 1e-12),
    )


@claim(
    id="E-erratum-12",
    title="printed: (G.5) with R_0 for R_0²",
    statement="R_T^trans R_T ≤ (2κ/ζ)(1 + ζR_0(1+γ)^{4T})^{T+3}.",
    label="(G.5)",
    erratum="ρ̃_t/ω̃_t ≤ 1 + ζ(α̃_tR_t)², so R_0² belongs there and κ/√ζ in front. Theorem C.4 keeps "
    "its order.",
)
def e_erratum_12(context: Context) -> Evidence:
    """100 layers with norms 0.001, whose scores are large only because the tokens are long."""
    network, radius = bounds.FullTransformer.uniform(4, 4, 100, norm=1e-3), 1e4
    printed = bounds.log_product_limit(network, radius, "printed")
    derived = bounds.log_product_limit(network, radius)
    found = log_product(network, radius)
    # γ = 10⁻³, κ = R^{qk}/(ω^{qk}ω^v) = 10³ and ζ = (2·10⁻³)²·10⁻³/1.001, as printed.
    zeta = 4e-9 / 1.001
    by_hand = math.log(2e3 / zeta) + 103 * math.log1p(zeta * 1e4 * 1.001**400)
    return Evidence(
        at_most("log(R_T^trans R_T)", found, printed),
        at_most("the same, as printed", log_product(network, radius, "printed"), printed),
        derived=(
            at_most("log(R_T^trans R_T), against the corrected limit", found, derived),
            close("the printed limit by hand (log)", printed - by_hand, 1e-10),
        ),
    )
