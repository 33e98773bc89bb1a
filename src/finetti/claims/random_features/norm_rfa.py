"""The norm of a target for random-feature attention: sharp, stated, and measured."""

import math
from collections.abc import Callable
from functools import partial
from itertools import product

import numpy as np

from finetti import attention, show
from finetti.bounds import Sample
from finetti.bounds import random_features as bounds
from finetti.claims.claim import Claim, Context, Control, Evidence, at_least, at_most, close, within
from finetti.claims.random_features.interpolation import draw_contexts, interpolant_norm
from finetti.claims.random_features.taylor import attention_coefficients

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


# The degrees of the three, and ‖Sym f_rs‖² for a unit vector b: ⟨b, b⟩², the trace of I, and
# ‖(I⊗b + its transpose in the key's slots)/2‖² = (d + d + 2‖b‖²)/4.
DEGREES_OF = {"⟨b,x⟩²": (0, 2), "⟨x₀,x⟩": (1, 1), "⟨x₀,x⟩⟨b,x⟩": (1, 2)}


def tensor_norms(dimension: int) -> dict[str, float]:
    """‖Sym f_rs‖² of the three targets."""
    return {"⟨b,x⟩²": 1.0, "⟨x₀,x⟩": dimension, "⟨x₀,x⟩⟨b,x⟩": (dimension + 1) / 2}


def sharp_norm(target: "bounds.Target") -> float:
    """Σ‖Sym f_rs‖²/κ_rs, as the package has it."""
    return bounds.AttentionNorm(target).evaluate(Sample(1, 1)).value


def run(context: Context, norm: "Callable[[bounds.Target], float]" = sharp_norm) -> Evidence:
    """Interpolation norms against Σ‖f_rs‖²/κ_rs, which is recomputed; C_k against 1/κ_rs, k ≤ 20.

    Interpolation comes within 28 % of the norm; κ_rs by Fourier sums over circles pins it.
    """
    rng = context.generator(CLAIM.id)
    contexts = draw_contexts(rng, context.pick(quick=600, paper=2_500), length=1)
    kernel = attention.InfiniteHeadKernel(contexts[0].shape[1])
    coefficients, tensors = attention_coefficients(), tensor_norms(contexts[0].shape[1])
    shares, errors, rows = [], [], []
    for name, (values, target) in targets(*contexts).items():
        bound = norm(target)
        found = interpolant_norm(kernel, *contexts[:2], values)
        shares.append(found / bound)
        errors.append(abs(bound * coefficients[DEGREES_OF[name]] / tensors[name] - 1))
        rows.append((name, found, bound))
    series = max(
        abs(math.exp(bounds.log_kernel_coefficient(r, s)) / coefficient - 1)
        for (r, s), coefficient in np.ndenumerate(coefficients)
    )
    stated = max(
        abs(math.exp(bounds.log_stated_constant(k)) / (k**4.5 * 4**k) - 1)
        for k in range(1, DEGREES + 1)
    )
    worst = max(
        -bounds.log_kernel_coefficient(r, s) - bounds.log_stated_constant(max(r, s))
        for r, s in product(range(DEGREES + 1), repeat=2)
    )
    return Evidence(
        (
            at_most("largest interpolation norm / sharp norm", max(shares), 1.0),
            at_least("smallest of them (the bound is not idle)", min(shares), 0.3),
            close("sharp norms by Fourier sums (relative)", max(errors), 1e-8),
            close("κ_rs by Fourier sums, r and s ≤ 6 (relative)", series, 1e-8),
            close("C_k − k^4.5·4^k, 1 ≤ k ≤ 20 (relative)", stated, 1e-12),
            within("largest (1/κ_rs)/C_k, k ≤ 20", math.exp(worst), 4.41, 4.42),
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
    controls=(
        Control("a norm 20 % too large", partial(run, norm=lambda each: 1.2 * sharp_norm(each))),
    ),
)
