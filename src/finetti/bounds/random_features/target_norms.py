"""How large a target is for each random-feature model: the squared norm that its risk scales with.

The norms of fu2023 are stated from knowledge of the paper; the derived ones follow from the models.
"""

import math
from typing import Any

from finetti.bounds import description as fields
from finetti.bounds.bound import NO_LAYER_NORM, NO_RESIDUALS, ONE_LAYER, Bound
from finetti.bounds.random_features.arc_cosine_series import (
    log_kernel_coefficient,
    log_network_coefficient,
    log_stated_constant,
)
from finetti.bounds.random_features.polynomial_targets import Component, Target
from finetti.bounds.value import BoundValue, Sample, Term, log_of, summed
from finetti.core.arguments import Form, check_form
from finetti.core.numerics.logspace import log_binomial

ASSUMED_OF_RANDOM_HEADS = (
    "the query and the keys have length 1",
    ONE_LAYER,
    "heads whose query-key matrices are drawn once and not trained (a usual Transformer trains "
    "them)",
    "ReLU of the scores, averaged over the tokens (a usual Transformer has softmax)",
    NO_RESIDUALS,
    NO_LAYER_NORM,
)
BIASED_HEADS = "the heads have the mean W_0 = [[S, 0], [0, 0]]"
STATED_NORM = "The norm is stated from knowledge of fu2023, not quoted."


def attention_terms(target: Target, form: Form = "derived") -> tuple[float, tuple[Term, ...]]:
    """log Σ_rs ‖Sym f_rs‖²/κ_rs and its parts; printed Σ_k C_k Σ_{max(r,s)=k} ‖f_rs‖²     fu2023"""
    check_form(form, "attention_terms")

    def part(component: Component) -> float:
        r, s = component.query_degree, component.key_degree
        if form == "printed":
            return log_stated_constant(max(r, s)) + component.log_square
        return component.log_symmetric - log_kernel_coefficient(r, s)

    return _summed(target, part)


def network_terms(target: Target, context_length: int) -> tuple[float, tuple[Term, ...]]:
    """log Σ_rs ‖Sym f_rs‖²/(C(r+s, r) N κ_{r+s}) and its parts, without N where s = 0.

    In all N + 1 tokens the N terms of an average are orthogonal, and symmetrizing over all r + s
    slots divides by C(r+s, r). Derived from the network of fu2023.
    """

    def part(component: Component) -> float:
        r, s = component.query_degree, component.key_degree
        average = math.log(context_length) if s else 0.0
        spread = float(log_binomial(r + s, r))
        coefficient = log_network_coefficient(r + s, context_length)
        return component.log_symmetric - spread - average - coefficient

    return _summed(target, part)


def _summed(target: Target, part: Any) -> tuple[float, tuple[Term, ...]]:
    scale, vector = (2 * log_of(each or 0.0) for each in (target.scale, target.vector_scale))

    def named(each: Component) -> Term:
        # The empty product is 1, also of a vector of length 0.
        longer = each.vector_degree * vector if each.vector_degree else 0.0
        name = f"degree ({each.query_degree}, {each.key_degree})"
        return Term(name, log_value=scale + longer + part(each))

    return summed(map(named, target.components))


class TargetBound(Bound):
    """A number that belongs to a target f*."""

    quantity = "squared norm"
    assumes = ASSUMED_OF_RANDOM_HEADS

    target: Target = fields.part(Target)


class AttentionNorm(TargetBound):
    """min E_W‖v(W)‖² ≤ Σ_rs ‖Sym f_rs‖²/κ_rs: the norm in the class of infinitely many heads

    Printed (stated): B(f*) = Σ_k C_k Σ_{max(r,s)=k} ‖f_rs‖², C_k = max(k^{4.5}4^k, 1), up to an
    absolute constant. The derived norm is at most 4.42 times that for every k ≤ 20.

    >>> sample = Sample(n_samples=100, context_length=16)
    >>> norm = AttentionNorm(Target.key_power(2))
    >>> round(norm.evaluate(sample).value, 2)
    12.87
    >>> round(AttentionNorm(Target.key_power(2), form="printed").evaluate(sample).value)  # 2^8.5
    362

    Reference: fu2023, the expressivity theorem; sharp constants derived from the kernel.
    """

    name = "R-norm-rfa"
    title = "norm of a target for random-feature attention"
    statement = "B_RFA ≤ Σ ‖Sym f_rs‖²/κ_rs; printed Σ p^4.5·4^p·‖f_rs‖², p = max(r, s)"
    citation = "expressivity theorem, fu2023"
    printed_kind = "scaling"

    def _evaluate(self, sample: Sample) -> BoundValue:
        notes = (STATED_NORM,) if self.form == "printed" else ()
        return self.value(sample, *attention_terms(self.target, self.form), notes=notes)


class NetworkNorm(TargetBound):
    """B_MLP ≤ Σ_rs ‖Sym f_rs‖²/(C(r+s, r) N κ_{r+s}): the norm for random neurons on all tokens

    N is the sample's ``context_length``.

    >>> round(NetworkNorm(Target.key_power(2)).evaluate(Sample(100, 16)).value)
    254
    """

    name = "R-norm-mlp"
    title = "norm of a target for a random-feature network"
    statement = "B_MLP ≤ Σ ‖Sym f_rs‖²/(binom(r+s, r)·T·ν_rs)"
    citation = "comparison with RFMLP (derived), fu2023"
    assumes = (
        ASSUMED_OF_RANDOM_HEADS[0],
        "the hidden weights of the network are drawn once and not trained",
    )

    def _evaluate(self, sample: Sample) -> BoundValue:
        return self.value(sample, *network_terms(self.target, sample.context_length))
