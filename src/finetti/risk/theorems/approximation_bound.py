"""Theorem 5.5 with both sides: what attention cannot represent, exactly, over all contexts."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from finetti.bounds import Sample
from finetti.bounds.exchangeability import SurrogateApproximation
from finetti.core.errors import bad_argument
from finetti.display import Card, Displayable
from finetti.latent import Encoded, FiniteAtoms
from finetti.risk.minimization import predictions
from finetti.risk.networks.attention_network import AttentionNetwork
from finetti.risk.theorems.context_table import enumerate_contexts, uniform_error
from finetti.risk.theorems.recovery_gap import RecoveryGap, recovery_gap


@dataclass(frozen=True, eq=False)
class ApproximationError(Displayable):
    """E‖f_θ − f*‖² ≤ 2ε_g² + 2ε_attn²                                    Theorem 5.5, zhang2022

    Args:
        excess: E‖f_θ(X) − f*(X)‖², summed over all contexts; at least E_approx if f_θ is allowed.
        gap: ε_g and the weights W of the surrogate.
        attention_error: ε_attn = sup_X ‖f_θ(X) − Wᵀ∫ψ(z)p(z|X)dz‖              (5.11)
        n_contexts: over how many contexts, up to their order.
    """

    excess: float
    gap: RecoveryGap
    attention_error: float
    n_contexts: int

    @property
    def bound(self) -> float:
        """2ε_g² + 2ε_attn²."""
        surrogate = SurrogateApproximation(self.gap.total, self.attention_error)
        return surrogate.evaluate(Sample(1, 1)).value

    @property
    def ratio(self) -> float:
        """Excess over bound: at most 1."""
        return self.excess / self.bound if self.bound else float(self.excess > 0)

    def __card__(self) -> Card:
        fields = (
            ("excess risk E‖f − f*‖²", self.excess),
            ("recovery gap ε_g", self.gap.total),
            ("attention's error ε_attn", self.attention_error),
            ("2ε_g² + 2ε_attn²", self.bound),
            ("contexts, up to their order", self.n_contexts),
        )
        return Card("Approximation error", fields)


def approximation_error(
    network: Any, world: FiniteAtoms, context_length: int, letter_values: Any = None
) -> ApproximationError:
    """Both sides of Theorem 5.5 for a network in a world of letters, without any sampling.

    ψ(z) = E[v^msk|z] = Σ_x p(x|z)v(x) and g*(z) = E[y|z]; W is the sup-norm projection of g* onto
    the space of ψ, and the surrogate Wᵀattn_CME = Wᵀ∫ψ(z)p(z|X)dz comes from the exact posterior.

    Args:
        network: f_θ, called as ``network(tokens, mask_token)``.
        world: finitely many atoms that emit letters.
        context_length: L.
        letter_values: v(x) of every letter, (letters, d); by default the network's own values.

    >>> import jax
    >>> world = FiniteAtoms(prior=[0.5, 0.5], emission=[[0.9, 0.1], [0.5, 0.5]])
    >>> network = AttentionNetwork.init(jax.random.key(0), token_dimension=2, out_dimension=2)
    >>> found = approximation_error(network, world, context_length=5)
    >>> found.n_contexts, found.excess <= found.bound
    (6, True)
    """
    contexts = enumerate_contexts(world, context_length)
    table = np.asarray(world.emission.mean)
    if letter_values is None:
        if not isinstance(network, AttentionNetwork):
            wanted = "given for a network that is not an AttentionNetwork"
            raise bad_argument("letter_values", "approximation_error", wanted, None)
        letter_values = network.values(np.eye(table.shape[1]))
    values = np.asarray(letter_values, np.float64)
    if values.ndim != 2 or len(values) != table.shape[1]:
        wanted = f"of shape ({table.shape[1]}, d), one row per letter"
        raise bad_argument("letter_values", "approximation_error", wanted, f"shape {values.shape}")
    target, features = world.answers.mean, table @ values
    gap = recovery_gap(target, features)
    tokens, best = world.emission.encode(contexts.tokens), contexts.mean(target)
    asked = np.zeros((len(tokens), tokens.shape[2]))  # as the world encodes it
    found = predictions(network, Encoded(tokens, asked, best))
    return ApproximationError(
        contexts.squared(found - best),
        gap,
        uniform_error(found - contexts.mean(features @ gap.weights)),
        len(tokens),
    )
