"""Theorem 6.4: what pretraining carries over to another task."""

from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Transfer:
    """A downstream task that reads a pretrained function through B."""

    world: World
    pretraining: np.ndarray  # g*_PT, one row per atom
    downstream: np.ndarray  # g*_DS
    features: np.ndarray  # ψ_DS
    pretraining_weights: np.ndarray  # W_SSL
    downstream_weights: np.ndarray  # W_DS
    pretrained_miss: np.ndarray  # f̂_PT − f*_PT, one row per context
    aggregation_miss: np.ndarray  # f − B f̂_PT

    @property
    def matrix(self) -> np.ndarray:
        """B."""
        return bounds.transfer_matrix(self.downstream_weights, self.pretraining_weights)

    @property
    def excess(self) -> float:
        """E‖f − f*_DS‖²."""
        pretrained = self.world.mean(self.pretraining) + self.pretrained_miss
        found = pretrained @ self.matrix.T + self.aggregation_miss
        return self.world.squared(found - self.world.mean(self.downstream))

    def bound(self, pretraining_excess: float) -> float:
        """3ε_agg² + 6μ(pretraining_excess + ε_SSL²) + 3ε_g²."""
        transfer = self.pretraining - self.features @ self.pretraining_weights
        latent = self.downstream - self.features @ self.downstream_weights
        return (
            bounds.TransferApproximation.from_weights(
                self.downstream_weights,
                self.pretraining_weights,
                pretraining_excess=pretraining_excess,
                transfer_error=largest_squares(transfer) ** 0.5,
                latent_error=largest_squares(latent) ** 0.5,
                aggregation_error=uniform_error(self.aggregation_miss),
            )
            .evaluate(Sample(1, 1))
            .value
        )

    @property
    def ratio(self) -> float:
        """Excess over bound, with the whole excess risk of the pretrained function."""
        return self.excess / self.bound(self.world.squared(self.pretrained_miss))


def draw_transfer(rng: np.random.Generator) -> Transfer:
    """Errors of all sizes; six atoms, three features, two outputs."""
    features, pretraining_weights = rng.normal(size=(6, 3)), rng.normal(size=(3, 3))
    downstream_weights = rng.normal(size=(3, 2))
    sizes = 10.0 ** rng.uniform(-2, 1, size=4)
    return Transfer(
        draw_world(rng),
        features @ pretraining_weights + sizes[0] * rng.normal(size=(6, 3)),
        features @ downstream_weights + sizes[1] * rng.normal(size=(6, 2)),
        features,
        pretraining_weights,
        downstream_weights,
        sizes[2] * rng.normal(size=(30, 3)),
        sizes[3] * rng.normal(size=(30, 2)),
    )


def aligned(size: float) -> Transfer:
    """All four errors point one way: ε_agg = ε_g = 2t, and t for the two inside B."""
    signs, one = np.array([[1.0], [-1.0]]), np.ones((1, 1))
    zero = np.zeros((2, 1))
    pretraining, downstream = size * signs, -2 * size * signs
    return Transfer(
        revealed(), pretraining, downstream, zero, one, one, size * signs, 2 * size * signs
    )


def run(
    context: Context, condition_number: Callable[..., float] = bounds.transfer_condition_number
) -> Evidence:
    """Downstream excess over the bound on random worlds, and where all errors point one way."""
    rng = context.generator(CLAIM.id)
    problems = [draw_transfer(rng) for _ in range(context.pick(quick=500, paper=5_000))]
    found = np.array([problem.ratio for problem in problems])
    identity = max(
        np.abs(p.matrix @ p.pretraining_weights.T - p.downstream_weights.T).max() for p in problems
    )
    weights = problems[0].pretraining_weights
    terms = bounds.TransferApproximation(0.1, 0.2, 0.1, 0.3, condition_number=2.0)
    # 3·0.3² + 6·2·(0.1 + 0.2²) + 3·0.1²
    explicit = terms.evaluate(Sample(1, 1)).value - 1.98
    return Evidence(
        (
            holds(found, "worlds"),
            within("all errors aligned", aligned(0.1).ratio, 0.99, 1 + 1e-9),
            close("B W_SSL^⊤ − W_DS^⊤", float(identity), 1e-8),
            close("μ − 1 for W_DS = W_SSL", condition_number(weights, weights) - 1, 1e-9),
            close("μ − 4 for W_DS = 2W_SSL", condition_number(2 * weights, weights) - 4, 1e-9),
            close("four different errors, μ = 2: bound − 1.98", explicit, 1e-12),
        )
    )


def _norm_of_transfer(downstream: np.ndarray, pretrained: np.ndarray) -> float:
    return bounds.transfer_condition_number(downstream, pretrained) ** 0.5


CLAIM = Claim(
    id="E-thm-6.4",
    title="four errors bound what pretraining carries over",
    statement="With B = W_DS^⊤(W_SSL W_SSL^⊤)⁻¹W_SSL and μ = ‖B‖², the downstream approximation "
    "error is at most 3ε_agg²(B) + 6μ(E^PT + ε_SSL²) + 3ε_g², with the whole excess risk of the "
    "pretrained function for E^PT.",
    paper="E",
    label="Theorem 6.4",
    run=run,
    controls=(Control("μ = ‖B‖ for ‖B‖²", partial(run, condition_number=_norm_of_transfer)),),
)
