"""CME attention's population: keys on finitely many points, all operators as matrices."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from finetti.core.arguments import as_positive, check_finite
from finetti.core.errors import InputError, bad_argument
from finetti.core.linalg.norms import spectral_dimension
from finetti.core.numerics.float64 import float64
from finetti.kernels.kernel import Kernel, check_kernel
from finetti.kernels.rbf import RBF


@dataclass(frozen=True, eq=False)
class KeySupport:
    """A key that is one of P points with known probabilities: what CME attention estimates.

    C_KK = Σ_j p_j k(k_j, ·)⊗k(k_j, ·), C_VK = Σ_j p_j m_j⊗k(k_j, ·) with m_j = E[V|K = k_j].

    Args:
        points: k_j, (P, d_k).
        mass: p_j > 0, of sum 1, (P,).
        kernel: K; by default RBF().

    >>> support = KeySupport(points=[[0.0], [3.0]], mass=[0.5, 0.5])
    >>> support.regularized([1.0, -1.0], ridge=1e-9, queries=[[0.0]]).round(6)
    array([1.])
    >>> round(support.effective_dimension(1e-9), 6)
    2.0

    Reference: Appendix A and B.4, zhang2022.
    """

    points: Any
    mass: Any
    kernel: Kernel = field(default_factory=RBF)

    def __post_init__(self) -> None:
        owner = "KeySupport"
        points, mass = np.asarray(self.points, np.float64), np.asarray(self.mass, np.float64)
        check_kernel(self.kernel, owner)
        if points.ndim != 2 or not len(points):
            raise bad_argument("points", owner, "of shape (P, d_k)", f"shape {points.shape}")
        check_finite(points, "points", owner)
        right = mass.shape == points.shape[:1] and (mass > 0).all() and abs(mass.sum() - 1) < 1e-9
        if not right:
            wanted = f"{len(points)} positive numbers of sum 1"
            raise bad_argument("mass", owner, wanted, f"shape {mass.shape}, sum {mass.sum():g}")
        object.__setattr__(self, "points", points)
        object.__setattr__(self, "mass", mass)

    @cached_property
    def gram(self) -> np.ndarray:
        """K among the points, (P, P)."""
        return self.across(self.points)

    def across(self, queries: Any) -> np.ndarray:
        """K from the points to queries, (P, Q)."""
        with float64():
            queries = np.asarray(queries, np.float64)
            return np.asarray(self.kernel.gram(self.points, queries), np.float64)

    @cached_property
    def spectrum(self) -> np.ndarray:
        """The eigenvalues of C_KK that are not 0: those of √p_i K(k_i, k_j) √p_j, ascending."""
        root = np.sqrt(self.mass)
        return np.linalg.eigvalsh(root[:, None] * self.gram * root).clip(min=0.0)

    def effective_dimension(self, ridge: float) -> float:
        """Γ(λ) = tr((C_KK + λI)⁻¹C_KK)."""
        as_positive(ridge, "ridge", "KeySupport")
        return spectral_dimension(self.spectrum, ridge)

    def regularized(
        self,
        means: Any,
        ridge: float,
        queries: Any = None,
        *,
        mass: Any = None,
        across: np.ndarray | None = None,
    ) -> np.ndarray:
        """C_VK(C_KK + λI)⁻¹k(q, ·) at queries, by default at the points.

        Args:
            means: E[V|K = k_j], (P,) or (P, d_v).
            ridge: λ.
            queries: q, (Q, d_k).
            mass: other probabilities than the support's own: with counts / L, and the mean values
                that were seen, it is attn_CME with the ridge Lλ on the L tokens themselves.
            across: `across` of the queries, where many calls share it.
        """
        as_positive(ridge, "ridge", "KeySupport")
        means = np.asarray(means, np.float64)
        mass = self.mass if mass is None else np.asarray(mass, np.float64)
        if across is None:
            across = self.gram if queries is None else self.across(queries)
        seen = mass > 0
        system = self.gram[np.ix_(seen, seen)] + np.diag(ridge / mass[seen])
        return across[seen].T @ np.linalg.solve(system, means[seen])

    def smoothed(self, source: Any, queries: Any = None) -> np.ndarray:
        """(C_KK h)(q) = Σ_j p_j K(k_j, q)h(k_j) for h given at the points: E[V|K] with source h."""
        across = self.gram if queries is None else self.across(queries)
        return across.T @ (self.mass * np.asarray(source, np.float64).T).T

    def source(self, means: Any) -> np.ndarray:
        """h at the points with C_KK h = E[V|K = ·] there: the source condition of (B.11).

        Refused where the kernel hardly tells the points apart, and h cannot be computed.
        """
        means = np.asarray(means, np.float64)
        found = (np.linalg.lstsq(self.gram, means, rcond=1e-13)[0].T / self.mass).T
        miss = np.abs(self.smoothed(found) - means).max()
        if miss > 1e-6 * max(1e-300, np.abs(means).max()):
            raise InputError(
                "These conditional means have no source h that can be computed: the kernel hardly "
                f"tells the points apart (they are missed by {miss:.3g}). Take a shorter "
                "lengthscale, fewer points, or means from `smoothed`."
            )
        return found

    def source_norm(self, source: Any) -> float:
        """‖h‖_H of the smallest h with these values at the points; over columns, √Σ‖h_i‖²."""
        source = np.asarray(source, np.float64)
        weights = np.linalg.lstsq(self.gram, source, rcond=1e-13)[0]
        return float(np.sqrt(max(0.0, np.sum(weights * source))))

    def bias(self, source: Any, ridge: float, queries: Any = None) -> float:
        """sup over queries of ‖regularized value − E[V|K=q]‖, where E[V|K=·] = C_KK h.

        At most λ‖h‖√K(q, q)                                                 (B.11), zhang2022
        """
        truth = self.smoothed(source, queries)
        value = self.regularized(self.smoothed(source), ridge, queries)
        errors = np.abs(value - truth)
        return float((errors if errors.ndim == 1 else np.linalg.norm(errors, axis=1)).max())
