"""Theorem 5.5: what a single attention cannot represent."""

from collections.abc import Callable
from functools import partial

import numpy as np

from finetti.bounds import Sample
from finetti.bounds import exchangeability as bounds
from finetti.claims.claim import Claim, Context, Control, Evidence, close, within
from finetti.claims.exchangeability.latent_problems import (
    World,
    draw_world,
    largest_squares,
    revealed,
    uniform_error,
)
from finetti.claims.perturbations import holds


def surrogate_bound(latent_error: float, attention_error: float) -> float:
    """2ε_g² + 2ε_attn², as the package has it."""
    return bounds.SurrogateApproximation(latent_error, attention_error).evaluate(Sample(1, 1)).value


def run(context: Context, bound: Callable[[float, float], float] = surrogate_bound) -> Evidence:
    """Excess risk over 2ε_g² + 2ε_attn² on random worlds, and where both errors point one way."""

    def ratio(
        world: World,
        target: np.ndarray,
        features: np.ndarray,
        weights: np.ndarray,
        miss: np.ndarray,
    ) -> float:
        """E‖f_θ − f*‖² over the bound, where f_θ misses the surrogate W^⊤ψ by ``miss``."""
        surrogate = features @ weights
        excess = world.squared(world.mean(surrogate) + miss - world.mean(target))
        latent_error = float(np.sqrt(largest_squares(target - surrogate)))
        return excess / bound(latent_error, uniform_error(miss))

    rng = context.generator(CLAIM.id)
    found = []
    for _ in range(context.pick(quick=500, paper=5_000)):
        world = draw_world(rng)
        features = rng.normal(size=(6, 3))
        weights = rng.normal(size=(3, 2))
        sizes = 10.0 ** rng.uniform(-2, 1, size=2)
        target = features @ weights + sizes[0] * rng.normal(size=(6, 2))
        found.append(ratio(world, target, features, weights, sizes[1] * rng.normal(size=(30, 2))))
    signs = np.array([[1.0], [-1.0]])
    tight = ratio(revealed(), -0.3 * signs, np.zeros((2, 1)), np.ones((1, 1)), 0.3 * signs)
    return Evidence(
        (
            holds(np.array(found), "worlds"),
            within("two atoms, aligned errors ε_g = ε_attn", tight, 0.99, 1 + 1e-9),
            # That instance cannot tell how 4 is shared between the two.
            close("ε_g = 0.3, ε_attn = 0.7: bound − (0.18 + 0.98)", bound(0.3, 0.7) - 1.16, 1e-12),
        )
    )


CLAIM = Claim(
    id="E-thm-5.5",
    title="two errors bound what attention cannot represent",
    statement="If the latent-to-target function is within ε_g of the space of K_LTV and the class "
    "within ε_attn of the surrogate W^⊤attn_CME, the excess risk of the best function is at most "
    "2ε_g² + 2ε_attn².",
    paper="E",
    label="Theorem 5.5",
    run=run,
    controls=(Control("3ε_g² + ε_attn²", partial(run, bound=lambda g, a: 3 * g * g + a * a)),),
)
