"""The norm of a target for random-feature attention: sharp, stated, and measured."""

import math
from itertools import product

import numpy as np

from finetti import attention, show
from finetti.bounds import Sample
from finetti.bounds import random_features as bounds
from finetti.claims.claim import Claim, Context, Evidence, at_least, at_most
from finetti.claims.random_features.interpolation import draw_contexts, interpolant_norm

DEGREES = 20


def targets(
    query: np.ndarray, keys: np.ndarray, direction: np.ndarray
) -> "dict[str, tuple[np.ndarray, bounds.Target]]":
    """Averages over the keys, and their descriptions."""
    correlation = np.einsum("nd,nid->ni", query, keys)
    along, d = keys @ direction, query.shape[1]
    return {
        "⟨b,x⟩²": ((along**2).mean(axis=1), bounds.Target.key_power(2)),
        "⟨x₀,x⟩": (correlation.mean(axis=1), bounds.Target.correlation_power(1, dimension=d)),
        "⟨x₀,x⟩⟨b,x⟩": (
            (correlation * along).mean(axis=1),
            bounds.Target.correlation_times_power(1, 1, d),
        ),
    }


def run(context: Context) -> Evidence:
    """Interpolation norms on random contexts against Σ‖f_rs‖²/κ_rs; C_k against 1/κ_rs, k ≤ 20."""
    rng = context.generator(CLAIM.id)
    contexts = draw_contexts(rng, context.pick(quick=600, paper=2_500), length=1)
    kernel = attention.InfiniteHeadKernel(contexts[0].shape[1])
    shares, rows = [], []
    for name, (values, target) in targets(*contexts).items():
        bound = bounds.AttentionNorm(target).evaluate(Sample(1, 1)).value
        found = interpolant_norm(kernel, *contexts[:2], values)
        shares.append(found / bound)
        rows.append((name, found, bound))
    worst = max(
        -bounds.log_kernel_coefficient(r, s) - bounds.log_stated_constant(max(r, s))
        for r, s in product(range(DEGREES + 1), repeat=2)
    )
    return Evidence(
        (
            at_most("largest interpolation norm / sharp norm", max(shares), 1.0),
            at_least("smallest of them (the bound is not idle)", min(shares), 0.3),
            at_most("largest (1/κ_rs)/C_k, k ≤ 20", math.exp(worst), 4.42),
        ),
        tables=(show.Table("d = 4", ("target", "interpolated", "sharp norm"), tuple(rows)),),
    )


CLAIM = Claim(
    id="R-norm-rfa",
    title="the norm of a polynomial target",
    statement="(1/N)Σ_i Σ_rs⟨f_rs, x₀^{⊗r} ⊗ x_i^{⊗s}⟩ is an infinite-head attention with "
    "E‖v(W)‖² ≤ Σ‖Sym f_rs‖²/κ_rs, which is at most 4.42 times the stated Σ C_k‖f_rs‖², "
    "C_k = max(k^4.5·4^k, 1), for all degrees up to 20.",
    paper="R",
    label="expressivity theorem (stated; constants derived)",
    run=run,
)
