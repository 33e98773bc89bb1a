"""The norm of a target for random neurons, and how it grows with the number of keys."""

import math

from finetti import attention
from finetti.bounds import Sample
from finetti.bounds import random_features as bounds
from finetti.claims.claim import Context, Control, Formula, claim
from finetti.claims.evidence import Evidence, at_least, at_most, close, trend, within
from finetti.claims.random_features import attention_norms as norms

_LENGTH = 2
_LENGTHS = (10**3, 10**4, 10**5, 10**6)
_POWERS = {1: 0, 2: 1, 3: 3, 4: 3}  # degree p of the average → exponent of N


def _norm(target: "bounds.Target") -> float:
    """B_MLP with two keys, as the package has it."""
    return bounds.NetworkNorm(target).evaluate(Sample(1, _LENGTH)).value


@claim(
    id="R-norm-mlp",
    title="averages cost a network powers of N",
    statement="For (1/N)Σ_i⟨b,x_i⟩^p the norm for random neurons on all tokens exceeds that for "
    "attention by N^{p−1} for p = 1 and even p, and by N^p for odd p ≥ 3. Derived; a ratio of "
    "upper bounds.",
    label="comparison with RFMLP (stated; derived)",
    controls=(Control("a norm without 1/N", changes={"norm": lambda f: _LENGTH * _norm(f)}),),
)
def r_norm_mlp(context: Context, norm: Formula = _norm) -> Evidence:
    """Interpolation norms with two keys against B_MLP, recomputed; exponents of B_MLP/B_RFA in N.

    κ_k by Fourier sums over a circle, and the size of the tensors in all slots, pin the norm.
    """
    rng = context.generator(r_norm_mlp.id)
    contexts = norms.draw_contexts(rng, context.pick(quick=600, paper=2_500), _LENGTH)
    kernel = attention.InfiniteMLPKernel(contexts[0].shape[1], _LENGTH)
    coefficients = norms.network_coefficients(_LENGTH)
    shares, errors = [], []
    for _, values, target, (r, s), tensor in norms.targets(*contexts):
        bound = norm(target)
        shares.append(norms.interpolant_norm(kernel, *contexts[:2], values) / bound)
        # An average has N orthogonal terms of weight 1/N²; symmetrized over all slots, C(r+s, r)
        # arrangements of query and key slots are orthogonal, too.
        size = tensor / (_LENGTH * math.comb(r + s, r))
        errors.append(abs(bound * coefficients[r + s] / size - 1))
    powers, records = [], []
    for degree, power in _POWERS.items():
        bound = bounds.AttentionAdvantage(bounds.Target.key_power(degree))
        logs = [bound.evaluate(Sample(1, length)).log_value for length in _LENGTHS]
        slope = (logs[-1] - logs[-2]) / math.log(_LENGTHS[-1] / _LENGTHS[-2])
        name = f"power of N at degree {degree}"
        powers.append(within(name, slope, power - 0.01, power + 0.01))
        records += [
            {"keys": length, "ratio": math.exp(log), "degree": f"p = {degree}"}
            for length, log in zip(_LENGTHS, logs, strict=True)
        ]
    axes = {"keys": "keys N", "ratio": "B_MLP / B_RFA"}
    chart = trend(
        records,
        axes,
        "Samples of the network over samples of attention",
        color="degree",
        log_y=True,
    )
    return Evidence(
        close("B_MLP by Fourier sums (relative)", max(errors), 1e-8),
        at_most("largest interpolation norm / B_MLP", max(shares), 1.0),
        at_least("largest of them (the bound is not idle)", max(shares), 0.3),
        *powers,
        charts=(chart,),
    )
