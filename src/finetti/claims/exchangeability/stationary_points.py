"""Proposition 5.6: what a stationary point costs, by its local linearization."""

from typing import Any

import numpy as np

from finetti import risk
from finetti.claims.claim import Context, Control, claim
from finetti.claims.evidence import Evidence, Measurement, at_most, within
from finetti.claims.perturbations import holds
from finetti.core.numbers import largest_of

SEQUENCES, LENGTH = 12, 4


def _problem(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens, no mask token, and centered answers of size at most 1."""
    tokens = rng.normal(size=(SEQUENCES, LENGTH, 2))
    target = rng.normal(size=(SEQUENCES, 1))
    target -= target.mean()
    return tokens, np.zeros((SEQUENCES, 2)), target / np.abs(target).max()


def _points(rng: np.random.Generator, starts: int) -> list["risk.OptimizationBound"]:
    """Both sides of (5.13) at the stationary points of one sample, and at its saddle θ = 0."""
    from finetti.claims import small_attention as small

    data = tokens, _, target = _problem(rng)
    found = [small.stationary(tokens, target, rng.uniform(-2, 2, size=8)) for _ in range(starts)]
    answers = [np.asarray(small.outputs(theta, tokens)) for theta in found]
    best = min(answers, key=lambda answer: float(np.mean((target - answer) ** 2)))
    box = risk.ParameterBox(-small.WIDTH, small.WIDTH)
    # At w = o = 0 and v = b = 0 nothing moves to first order but o, along the mean answer, 0.
    points = [*found, np.zeros(8)]
    return [
        risk.optimization_bound(small.SmallAttention(theta), data, best, box, tolerance=1e-3)
        for theta in points
    ]


def _tight(constant: float | None, eta: float = 0.02) -> Measurement:
    """y = −1, f_θ = 1 − θ² at θ̂ = 0, f̃ = 1 − η: E_opt = 4η − η², and 4·η is the bound."""
    from finetti.claims.small_attention import Parabola

    data = np.zeros((1, 1, 1)), np.zeros((1, 1)), -np.ones((1, 1))
    box = risk.ParameterBox(-1.0, 1.0)
    found = risk.optimization_bound(Parabola(np.zeros(1)), data, [[1 - eta]], box)
    return within("y = −1, f = 1 − θ², f̃ = 0.98", _ratio(found, constant), 0.99, 1 + 1e-9)


def _ratio(found: Any, constant: float | None) -> float:
    """E_opt over (5.13), whose right-hand side is certified from below."""
    return found.excess / largest_of(
        (found.constant if constant is None else constant) * found.dual + found.slack, 1e-300
    )


@claim(
    id="E-prop-5.6",
    title="what a stationary point costs, by its linearization",
    statement="At a stationary θ̂ (5.12), E_opt ≤ 4·min_θ Ê‖f_θ̂ + ∇f_θ̂^⊤(θ − θ̂) − f̃‖ with the best "
    "function f̃ of the class on the sample, for ‖y‖, ‖f‖ ≤ 1.",
    formula=r"E_{opt} ≤ 4 min_θ \hat{E} ‖f_{\hat{θ}} + ∇f_{\hat{θ}}^⊤ (θ − \hat{θ}) − \tilde{f}‖",
    label="Proposition 5.6, (5.13)",
    controls=(Control("3 for 4", lambda context: Evidence(_tight(3.0))),),
)
def e_prop_5_6(context: Context) -> Evidence:
    """E_opt over the certified right-hand side, at stationary points of small attention networks.

    Minima and saddles over the box [−2, 2]⁸; the best of them all stands for f̃, so that E_opt is a
    lower estimate. The right-hand side is a dual value, which is at most what it should be.
    """
    rng = context.generator(e_prop_5_6.id)
    samples = context.pick(quick=40, paper=400)
    found = [each for _ in range(samples) for each in _points(rng, starts=5)]
    ratios = np.array([_ratio(each, None) for each in found])
    gaps = [each.gap / each.value for each in found if each.excess > 1e-3]
    worse = sum(each.excess > 1e-3 for each in found)
    return Evidence(
        holds(ratios, "stationary points"),
        _tight(None),
        at_most("slack of the stationary points (5.12)", largest_of(e.slack for e in found), 1e-3),
        at_most("value − dual, over the value, where E_opt > 0.001", largest_of(gaps), 1e-2),
        note=f"{worse} of {len(found)} points have E_opt > 0.001.",
    )
