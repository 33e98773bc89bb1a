"""Theorem 4.6's remark: unit spectral norms avoid the exponential in the depth."""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from finetti.attention import lipschitz
from finetti.claims.claim import (
    Claim,
    Context,
    Control,
    Evidence,
    Measurement,
    at_least,
    at_most,
    close,
    within,
)
from finetti.claims.perturbations import ROUNDING, holds
from finetti.claims.sparse_variables import draws
from finetti.claims.sparse_variables.instances import balanced, first_axis, layer, two_tokens

DEPTH, NETWORKS, STEP = 8, 500, 1e-6


def nearer(diameter: float) -> float:
    """D·tanh(D²/4): how far apart tokens that were D apart can be after a layer of unit norms.

    Two queries D apart see scores that differ by up to D², up to a constant D²/2 either way; their
    weights differ by 2 tanh(D²/4) in ℓ1 (Corollary A.7), and half of that times D is the distance.
    """
    return diameter * math.tanh(diameter**2 / 4)


def amplified(depth: int, contract: Callable[[float], float] = nearer) -> float:
    """Π_i (1 + D_i/2·(1 + D_i/2)), D_1 = 2: what ``depth`` layers of unit norms multiply by.

    A deviation ε moves the values by ε, and the weights by a covariance: the scores' standard
    deviation, at most ε(1 + D/2), times that of the values, at most D/2.
    """
    total, diameter = 1.0, 2.0
    for _ in range(depth):
        total *= 1 + diameter / 2 * (1 + diameter / 2)
        diameter = contract(diameter)
    return total


def diameters(network: list[Any], tokens: np.ndarray) -> list[float]:
    """The largest distance between two tokens, before and after every layer."""
    found = []
    for each in (None, *network):
        tokens = tokens if each is None else np.asarray(each(tokens))
        found.append(float(np.linalg.norm(tokens[:, None] - tokens[None], axis=2).max()))
    return found


def measure(contract: Callable[[float], float]) -> tuple[Measurement, ...]:
    """``contract`` on the tokens ±e₁, where it is an equality, and the product that follows."""
    found = diameters([layer(first_axis(1.0))] * 4, two_tokens())
    ratios = [after / contract(before) for before, after in pairwise(found)]
    # 2 → 1.5232 → 0.7963 → 0.1252 → 0.0005: 3 · 2.3416 · 1.5567 · 1.0665 · 1.0002
    return (
        within("±e₁: least distance / D tanh(D²/4)", min(ratios), 1 - ROUNDING, 1 + ROUNDING),
        within("±e₁: largest distance / D tanh(D²/4)", max(ratios), 1 - ROUNDING, 1 + ROUNDING),
        close("1000 layers multiply by 11.66, minus that", amplified(1000, contract) - 11.66, 0.01),
    )


def run(context: Context) -> Evidence:
    """Distances between tokens and amplification of deviations, layer by layer, norms at most 1.

    The distances are sharp; the product is an upper bound that is not.
    """
    import jax
    import jax.numpy as jnp

    sharp = measure(nearer)

    @jax.vmap
    def moved(tokens: Any, step: Any, weights: Any) -> Any:
        def onward(tokens: Any) -> Any:
            states = [tokens]
            for each in weights:
                unit = [w / jnp.maximum(1.0, jnp.linalg.norm(w, 2)) for w in each]
                states.append(draws.build(*unit)(states[-1]))
            return jnp.stack(states)

        states, slopes = jax.jvp(onward, (tokens,), (step,))
        apart = jnp.linalg.norm(states[:, :, None] - states[:, None], axis=-1).max((1, 2))
        return apart, jnp.linalg.norm(slopes, axis=-1).max(-1)

    rng = context.generator(CLAIM.id)
    tokens = draws.tokens(rng, NETWORKS, radius=1.0)
    steps = draws.tokens(rng, NETWORKS, radius=1.0)
    weights = [draws.weights(rng, NETWORKS) for _ in range(DEPTH)]
    apart, slopes = (np.asarray(each) for each in jax.jit(moved)(tokens, steps, weights))
    distance = apart[:, 1:] / np.maximum(apart[:, :-1] * np.tanh(apart[:, :-1] ** 2 / 4), 1e-12)
    limits = [amplified(depth) for depth in range(1, DEPTH + 1)]
    growth = slopes[:, 1:] / slopes[:, :1] / limits
    matrix, before, after = balanced(1.0, step=STEP, common=0.5**0.5)
    one = lipschitz.attention_token_perturbation(layer(matrix), before, after)
    size = float(np.linalg.norm(after - before, axis=1).max())
    return Evidence(
        (
            *sharp,
            holds(distance, "layers: distance / D tanh(D²/4)"),
            holds(growth, "depths: amplification / product"),
            at_least(
                "one layer: amplification, so that it is not 1", float(one.measured) / size, 2.4
            ),
            at_most("the same against 3", float(one.measured) / size, 3.0),
        ),
        note="Lemma A.14 alone gives 3 for every layer (5 with the printed constant): the remark "
        "does not follow from Theorem A.17, but it is true.",
    )


def _slower(context: Context) -> Evidence:
    return Evidence(measure(lambda diameter: diameter * math.tanh(diameter**2 / 2)))


CLAIM = Claim(
    id="S-thm-4.6-depth",
    title="unit spectral norms avoid the exponential in the depth",
    statement="If the spectral norms of W_V, W_QK, W_C and L_σ are at most 1, layers bring tokens "
    "together, from D to at most D tanh(D²/4), and multiply a deviation of the tokens by less than "
    "11.7 in all, at any depth.",
    paper="S",
    label="Theorem 4.6, the remark after it (the proof is ours)",
    run=run,
    controls=(Control("tanh(D²/2)", _slower),),
)
