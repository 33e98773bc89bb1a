"""A.1: softmax and the projection onto the ball move no more than what they read."""

from collections.abc import Callable
from typing import Any

import numpy as np

from finetti import attention
from finetti.attention import lipschitz
from finetti.claims.claim import Context, Control, claim
from finetti.claims.evidence import Evidence, Verdict, at_least, at_most, close, within
from finetti.claims.perturbations import (
    DRAWS,
    RATIO_RTOL,
    attained,
    holds,
    mapped,
    normalized,
    sizes,
)
from finetti.claims.wrong import looser


@claim(
    id="S-cor-A.7",
    title="softmax is 1-Lipschitz, from ℓ_∞ to ℓ₁",
    statement="‖softmax(θ) − softmax(θ')‖₁ ≤ ‖θ − θ'‖_∞; the constant 1 is sharp (printed: 2), and "
    "2 tanh(‖θ − θ'‖_∞/2) bounds it at any distance.",
    formula=r"‖softmax(θ) − softmax(θ′)‖_1 ≤ 2 tanh(\frac{‖θ−θ′‖_∞}{2}) ≤ ‖θ − θ′‖_∞",
    printed="‖softmax(θ) − softmax(θ′)‖_1 ≤ 2 ‖θ − θ′‖_∞",
    controls=(
        Control(
            "C = 2, as printed",
            breaks={"finetti.attention.lipschitz.softmax_perturbation": looser(2.0)},
        ),
    ),
)
def s_cor_a_7(context: Context) -> Evidence:
    """‖softmax(θ) − softmax(θ')‖₁ against ‖θ − θ'‖_∞ and against 2 tanh(‖θ − θ'‖_∞ / 2)."""
    rng = context.generator(s_cor_a_7.id)
    scores = sizes(rng, -1, 1, DRAWS)[..., 0] * rng.normal(size=(DRAWS, 6))
    other = scores + sizes(rng, -3, 1, DRAWS)[..., 0] * rng.choice([-1.0, 0, 1], size=(DRAWS, 6))
    moved = mapped(lipschitz.softmax_perturbation, scores, other)
    largest = np.asarray(moved.bound)
    still = largest == 0
    tight = lipschitz.softmax_perturbation(np.zeros(2), np.array([1e-3, -1e-3]))
    limit = np.where(still, 1.0, lipschitz.softmax_distance(largest))
    saturated = np.asarray(moved.measured) / limit
    return Evidence(
        holds(np.asarray(moved.ratio)),
        attained("two equal scores moved apart", tight),
        at_most("largest ratio to 2 tanh(δ/2)", saturated.max(), 1 + RATIO_RTOL),
        note="The printed constant 2 is true as well, and twice too large.",
    )


def pairs(context: Context, claim_id: str) -> tuple[np.ndarray, np.ndarray]:
    """Random pairs of tokens, near and far, short and long."""
    rng = context.generator(claim_id)
    first = sizes(rng, -3, 3, DRAWS)[:, 0] * rng.normal(size=(DRAWS, 4))
    return first, first + sizes(rng, -4, 2, DRAWS)[:, 0] * rng.normal(size=(DRAWS, 4))


def stretched(first: np.ndarray, second: np.ndarray, project: Callable[[Any], Any]) -> np.ndarray:
    """‖Πa − Πb‖ / ‖a − b‖."""
    images = [np.asarray(project(each)) for each in (first, second)]
    return np.linalg.norm(images[0] - images[1], axis=1) / np.linalg.norm(first - second, axis=1)


@claim(
    id="S-lemma-A.9",
    title="projection onto the ball is a contraction",
    statement="‖Π(a) − Π(b)‖ ≤ ‖a − b‖ for the projection Π of tokens onto the unit ball.",
    formula="‖Π(a) − Π(b)‖ ≤ ‖a − b‖",
    controls=(Control("the sphere", changes={"project": normalized}),),
)
def s_lemma_a_9(context: Context, project: Any = None) -> Evidence:
    """The largest stretch of random pairs."""
    project = project or attention.project_ball
    largest = stretched(*pairs(context, s_lemma_a_9.id), project).max()
    return Evidence(
        at_most(f"largest stretch of {DRAWS} pairs", largest, 1 + RATIO_RTOL),
        at_least("the same, so that 1 is sharp", largest, 1 - 1e-6),
    )


_EPSILON, _WIDTH = 1e-5, 4


@claim(
    id="S-lemma-A.9-sphere",
    title="neither dividing by the length nor LayerNorm is a contraction",
    statement="Dividing by the length tears tokens of length r apart by 1/r; LayerNorm with ε is "
    "max|gain|/√ε-Lipschitz, and no better.",
    formula=r"‖LN(a) − LN(b)‖ ≤ \frac{max|g|}{\sqrt{ε}} ‖a − b‖",
    label="Lemma A.9 (the paper projects onto the ball; this is ours)",
    controls=(Control("LayerNorm as a contraction", changes={"constant": _EPSILON**0.5}),),
)
def s_lemma_a_9_sphere(context: Context, constant: float = 1.0) -> Evidence:
    """How far dividing by the length and LayerNorm move tokens apart."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    rng = context.generator(s_lemma_a_9_sphere.id)
    gain = rng.uniform(0.5, 2, size=_WIDTH)
    plain = eqx.nn.LayerNorm(_WIDTH, eps=_EPSILON)
    normalize = eqx.tree_at(lambda norm: norm.weight, plain, jnp.asarray(gain))
    limit = constant / _EPSILON**0.5
    found = stretched(*pairs(context, s_lemma_a_9_sphere.id), jax.vmap(normalize)).max()
    # Tokens whose coordinates are nearly equal: there the length that LayerNorm divides by is √ε.
    still, step = np.ones((1, _WIDTH)), 1e-6 * np.array([[1.0, -1.0, 0.0, 0.0]])
    flat = stretched(still, still + step, jax.vmap(plain))[0]
    short = sizes(rng, -3, -1, 100)[:, 0] * np.array([[1.0, 0.0]])
    torn = stretched(short, short + 1e-9 * np.array([[0.0, 1.0]]), normalized)
    miss = np.abs(torn * np.abs(short).sum(axis=1) - 1).max()
    ratio = found / (constant * gain.max() / _EPSILON**0.5)
    return Evidence(
        close("sphere: stretch of short tokens times their length, minus 1", miss, 1e-5),
        at_most("LayerNorm: largest stretch / (max|gain|/√ε)", ratio, 1 + RATIO_RTOL),
        within("LayerNorm at equal coordinates / (1/√ε)", flat / limit, 0.98, 1 + RATIO_RTOL),
        note=f"1/√ε is {_EPSILON**-0.5:.3g} at ε = 1e-5.",
    )


@claim(
    id="S-erratum-17",
    title="Lemma A.9 stands, its printed proof does not",
    statement="⟨Πa − Πb, a − b⟩ ≥ ‖Πa − Πb‖² for the projection Π onto the unit ball, which gives "
    "Lemma A.9.",
    formula="⟨Πa − Πb, a − b⟩ ≥ ‖Πa − Πb‖^2",
    label="Lemma A.9, proof",
    expected=Verdict.HOLDS,
    erratum="The printed proof has misprints; the lemma is true.",
    controls=(Control("the sphere", changes={"project": normalized}),),
)
def s_erratum_17(context: Context, project: Any = None) -> Evidence:
    """The inequality of a proof without cases, in each of the cases of the printed one."""
    first, second = pairs(context, s_erratum_17.id)
    project = project or attention.project_ball
    moved = np.asarray(project(first)) - np.asarray(project(second))
    apart = first - second
    # ⟨Πa − Πb, a − b⟩ − ‖Πa − Πb‖² over ‖a − b‖²
    spare = (moved * (apart - moved)).sum(axis=1) / (apart**2).sum(axis=1)
    outside = sum((np.linalg.norm(each, axis=1) > 1).astype(int) for each in (first, second))
    return Evidence(
        *(
            at_least(f"least spare, {name}", spare[outside == count].min(), -RATIO_RTOL)
            for count, name in enumerate(("both inside", "one inside", "both outside"))
        ),
        note="With c = Πb in ⟨a − Πa, c − Πa⟩ ≤ 0, the angle at a nearest point of a convex set, "
        "and the same for b, the sum of both is this inequality; Cauchy–Schwarz gives the lemma.",
    )
