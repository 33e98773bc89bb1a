"""Proposition 5.6: what a stationary point may cost, by its local linearization."""

from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import numpy as np

from finetti.core.arrays import as_array
from finetti.core.errors import bad_argument
from finetti.core.numerics.extremes import largest_of
from finetti.core.numerics.float64 import float64
from finetti.display import Card, Displayable
from finetti.latent import Encoded
from finetti.risk.minimization import as_encoded
from finetti.risk.networks.user_network import as_network
from finetti.risk.parameters import flatten, unflatten
from finetti.risk.theorems.norm_sums import minimize_norms
from finetti.risk.theorems.parameter_box import ParameterBox

MAX_ENTRIES = 50_000_000  # of a Jacobian: 400 MB
STEEPEST = 4.0  # sup ‖∇_f ℓ‖ for ‖y‖, ‖f‖ ≤ 1


@dataclass(frozen=True)
class OptimizationBound(Displayable):
    """E_opt ≤ 4·min_θ∈Θ Ê‖f_θ̂ + ∇f_θ̂ᵀ(θ − θ̂) − g‖ at a stationary θ̂         (5.13), zhang2022

    Args:
        excess: Ê[ℓ(f_θ̂)] − Ê[ℓ(g)], which is E_opt for g = f̃.
        value: the minimum as found, at least the true one.
        dual: a certified floor of it.
        constant: sup ‖∇_f ℓ‖: 4 where ‖y‖, ‖f_θ̂‖ ≤ 1, and 2·max(‖y‖ + ‖f_θ̂‖) where not.
        slack: max_θ∈Θ ⟨−∇Ê[ℓ], θ − θ̂⟩, which is 0 where θ̂ is stationary (5.12) and adds to the
            bound where not.
        move: θ − θ̂ at the minimum.
    """

    excess: float
    value: float
    dual: float
    constant: float
    slack: float
    move: np.ndarray = field(repr=False)

    @property
    def gap(self) -> float:
        """Return the gap between the value and its certified floor."""
        return self.value - self.dual

    @property
    def bound(self) -> float:
        """constant·dual + slack: no larger than the right-hand side really is."""
        return self.constant * self.dual + self.slack

    @property
    def ratio(self) -> float:
        """Excess over bound: above 1 only if (5.13) fails, or if the gap hides it."""
        if self.bound > 0:
            return self.excess / self.bound
        return np.inf if self.excess > 0 else 0.0

    def __card__(self) -> Card:
        fields = (
            ("E_opt against the comparator", self.excess),
            ("bound, certified from below", self.bound),
            ("distance of the linearization", self.value),
            ("the same, from below", self.dual),
            ("constant", self.constant),
            ("slack of the stationary point", self.slack),
        )
        return Card("Optimization bound (5.13)", fields)


def optimization_bound(
    network: Any,
    data: Any,
    comparator: Any,
    box: ParameterBox,
    *,
    tolerance: float = 1e-4,
) -> OptimizationBound:
    """(5.13) at a network θ̂, for the squared loss: both sides, the right one certified from below.

    The paper prints f* for g; its proof has f̃, the best network on the sample (erratum 7).

    Args:
        network: f_θ̂, as `minimize_risk` takes it.
        data: the sample.
        comparator: g: a network, or its answers on the sample (n, d_y).
        box: Θ, which contains θ̂.
        tolerance: of the gap between value and dual, as a share of the value.

    A function without derivative at θ̂ = 0, y = −1 and g = 1 − η: the ratio is 1 − η/4.

    >>> class Parabola(eqx.Module):
    ...     theta: Any
    ...     def __call__(self, tokens, mask_token):
    ...         return 1 - self.theta**2 + 0 * tokens[0]
    >>> from finetti.risk import ParameterBox
    >>> data = np.zeros((1, 1, 1)), np.zeros((1, 1)), np.array([[-1.0]])
    >>> found = optimization_bound(Parabola(np.zeros(1)), data, [[0.98]], ParameterBox(-1, 1))
    >>> round(found.ratio, 6)
    0.995
    """
    data = as_encoded(data, "optimization_bound")
    network = as_network(network, data)
    at = flatten(network)
    if np.abs(box.project(at) - at).max() > 1e-9 * max(1.0, np.abs(at).max()):
        raise bad_argument("box", "optimization_bound", "one that contains the network", box)
    at = box.project(at)
    with float64():
        held = jax.tree.map(lambda leaf: as_array(np.asarray(leaf, np.float64)), data)
        theta = as_array(at)
        found = np.asarray(_outputs(theta, network, held))
        other = comparator
        if callable(comparator):
            other = as_network(comparator, data)(held.tokens, held.mask_token)
        other = np.asarray(other, np.float64)
        if other.shape != found.shape:
            wanted = f"a network, or its answers of shape {found.shape}"
            raise bad_argument("comparator", "optimization_bound", wanted, f"shape {other.shape}")
        if found.size * at.size > MAX_ENTRIES:
            got = f"{found.size} answers and {at.size} weights"
            wanted = f"a sample whose Jacobian has at most {MAX_ENTRIES} entries"
            raise bad_argument("data", "optimization_bound", wanted, got, "Take fewer sequences.")
        matrix = np.asarray(_jacobian(theta, network, held))
    best = minimize_norms(found - other, matrix, box, at, tolerance=tolerance)
    miss = data.target - found
    slack = -box.minimize_linear(np.einsum("ny,nyp->p", -2 * miss, matrix) / len(miss), at)
    sizes = np.linalg.norm(data.target, axis=1) + np.linalg.norm(found, axis=1)
    excess = np.mean(np.sum(miss**2, axis=1)) - np.mean(np.sum((data.target - other) ** 2, axis=1))
    return OptimizationBound(
        float(excess),
        best.value,
        best.dual,
        max(STEEPEST, 2 * float(sizes.max())),
        largest_of(0.0, slack),
        best.move,
    )


@eqx.filter_jit
def _outputs(theta: Any, network: Any, data: Encoded) -> Any:
    return unflatten(theta, network)(data.tokens, data.mask_token)


@eqx.filter_jit
def _jacobian(theta: Any, network: Any, data: Encoded) -> Any:
    """Sequence by sequence: (n, d_y, p)."""

    def single(theta: Any, tokens: Any, mask_token: Any) -> Any:
        return unflatten(theta, network)(tokens[None], mask_token[None])[0]

    rows = jax.vmap(jax.jacrev(single), in_axes=(None, 0, 0))
    return rows(theta, data.tokens, data.mask_token)
