"""Theorems 5.5 and 6.4: what a class cannot represent, and what pretraining carries over."""

from typing import Any

import numpy as np

from finetti.bounds import description as fields
from finetti.bounds.bound import Bound
from finetti.bounds.value import BoundValue, Sample, Term, summed
from finetti.core.arguments import check_finite
from finetti.core.errors import bad_argument
from finetti.core.numerics.log_number import LogNumber

SQUARED_LOSS = "the loss is ‖y − f‖²"
_ROUNDING = 1e-8  # relative: what float64 weights leave outside a range they are in


def transfer_matrix(downstream: Any, pretrained: Any) -> np.ndarray:
    """B = W_DS^⊤(W_SSL W_SSL^⊤)⁻¹W_SSL, with B W_SSL^⊤ = W_DS^⊤              (6.10), zhang2022

    Args:
        downstream: W_DS, shape (d, d_y).
        pretrained: W_SSL, shape (d, d'). If W_SSL W_SSL^⊤ is singular, its pseudo-inverse; columns
            of W_DS outside the range of W_SSL are refused, since no B gives the identity then.

    >>> transfer_matrix(np.eye(2)[:, :1], 2 * np.eye(2))
    array([[0.5, 0. ]])
    >>> transfer_matrix(np.eye(2)[:, :1], np.eye(2)[:, 1:])
    Traceback (most recent call last):
        ...
    finetti.core.errors.InputError: The `downstream` argument of transfer_matrix must be in the range of `pretrained`, as (6.10) asks. Got a matrix of which 100 % of the norm is outside instead. Pretrain on more outputs, or take the part inside and add the rest to latent_error.
    """  # noqa: E501
    owner = "transfer_matrix"
    target, source = (np.asarray(each, dtype=np.float64) for each in (downstream, pretrained))
    for name, array in (("downstream", target), ("pretrained", source)):
        if array.ndim != 2 or not array.size:
            raise bad_argument(name, owner, "a matrix (d, outputs)", f"shape {array.shape}")
        check_finite(array, name, owner)
    if len(target) != len(source):
        requirement = f"a matrix with {len(target)} rows, as downstream has"
        raise bad_argument("pretrained", owner, requirement, f"shape {source.shape}")
    left, singular, right = np.linalg.svd(source, full_matrices=False)
    kept = singular > max(source.shape) * np.finfo(np.float64).eps * singular[0]
    left, singular, right = left[:, kept], singular[kept], right[kept]
    inside = left.T @ target
    outside, whole = np.linalg.norm(target - left @ inside), np.linalg.norm(target)
    if outside > _ROUNDING * whole:
        raise bad_argument(
            "downstream",
            owner,
            "in the range of `pretrained`, as (6.10) asks",
            f"a matrix of which {100 * outside / whole:.3g} % of the norm is outside",
            "Pretrain on more outputs, or take the part inside and add the rest to latent_error.",
        )
    return (inside / singular[:, None]).T @ right


def transfer_condition_number(downstream: Any, pretrained: Any) -> float:
    """μ = ‖B‖² of `transfer_matrix`: 1 where both tasks use the same weights  (6.10), zhang2022

    >>> round(transfer_condition_number(np.diag([1.0, 2.0]), np.diag([1.0, 2.0])), 12)
    1.0
    """
    return float(np.linalg.norm(transfer_matrix(downstream, pretrained), 2) ** 2)


class ApproximationBound(Bound):
    """A bound of an approximation error from other errors, all of them fields."""

    quantity = "approximation error"

    def _summed(self, sample: Sample, *parts: tuple[str, float, LogNumber]) -> BoundValue:
        terms = [Term(name, log_value=(size * factor).log) for name, factor, size in parts]
        return self.value(sample, *summed(terms))


class SurrogateApproximation(ApproximationBound):
    """E_approx ≤ 2ε_g² + 2ε_attn²

    Args:
        latent_error: ε_g, from the latent-to-target function to the space of K_LTV.
        attention_error: ε_attn, from the class to the surrogate W^⊤attn_CME, uniformly in X.

    >>> SurrogateApproximation(0.5, 0.1).evaluate(Sample(1, 1)).value
    0.52
    """

    name = "E-thm-5.5"
    title = "what a single attention cannot represent"
    statement = "E_approx ≤ 2ε_g² + 2ε_attn²"
    citation = "Theorem 5.5, zhang2022"
    printed_kind = "upper_bound"
    assumes = (SQUARED_LOSS,)

    latent_error: float = fields.norm(1.0)
    attention_error: float = fields.norm(1.0)

    def _evaluate(self, sample: Sample) -> BoundValue:
        return self._summed(
            sample,
            ("latent to target", 2.0, LogNumber.from_float(self.latent_error) ** 2),
            ("attention", 2.0, LogNumber.from_float(self.attention_error) ** 2),
        )


class TransferApproximation(ApproximationBound):
    """E_approx ≤ 3ε_agg²(B) + 6μ(E_approx^PT + ε_SSL²) + 3ε_g²

    Constants from (E.8)–(E.15); printed: without 3, 6, 3. `transfer_condition_number` gives μ from
    W_DS and W_SSL.

    Args:
        pretraining_excess: the whole excess risk of the pretrained f̂_PT. Printed as E_approx^PT,
            which is right for the population minimizer only (erratum 10).
        transfer_error: ε_SSL, from the pretraining target to the space of the downstream mask.
        latent_error: ε_g of the downstream task.
        aggregation_error: ε_agg(B).
        condition_number: μ ≥ ‖B‖².

    >>> bound = TransferApproximation(0.1, 0.2, 0.1, 0.3, condition_number=2.0)
    >>> round(bound.evaluate(Sample(1, 1)).value, 9)       # 3·0.09 + 12·(0.1 + 0.04) + 3·0.01
    1.98
    """

    name = "E-thm-6.4"
    title = "what pretraining carries over"
    statement = "E_approx ≤ 3ε_agg² + 6μ(E_pre + ε_SSL²) + 3ε_g²"
    citation = "Theorem 6.4, zhang2022"
    printed_kind = "scaling"
    assumes = (
        SQUARED_LOSS,
        "μ is at least the squared norm of the matrix from pretrained to downstream weights",
    )

    pretraining_excess: float = fields.norm(1.0)
    transfer_error: float = fields.norm(1.0)
    latent_error: float = fields.norm(1.0)
    aggregation_error: float = fields.norm(1.0)
    condition_number: float = fields.norm(1.0)

    def _evaluate(self, sample: Sample) -> BoundValue:
        outer, inner = (3.0, 6.0) if self.form == "derived" else (1.0, 1.0)
        mu = LogNumber.from_float(self.condition_number)
        return self._summed(
            sample,
            ("aggregation", outer, LogNumber.from_float(self.aggregation_error) ** 2),
            ("pretraining", inner, mu * self.pretraining_excess),
            ("transfer", inner, mu * LogNumber.from_float(self.transfer_error) ** 2),
            ("latent to target", outer, LogNumber.from_float(self.latent_error) ** 2),
        )
