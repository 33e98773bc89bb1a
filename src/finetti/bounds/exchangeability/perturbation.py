"""Lemmas C.11, C.13 and C.14 as numbers: how far outputs move with weights and with tokens."""

from dataclasses import replace

from finetti.bounds.exchangeability.base import NetworkBound
from finetti.bounds.exchangeability.chain import heads_link
from finetti.bounds.exchangeability.positive import Positive
from finetti.bounds.fields import norm_field
from finetti.bounds.sample import Sample
from finetti.bounds.value import BoundValue, Term, summed
from finetti.core.logspace import log_subtract
from finetti.core.numbers import as_positive


class HeadsTokenConstant(NetworkBound):
    """ρ = Σω^v + cR²Σ(ω^q + ω^k)²ω^v: how much the first layer's heads stretch a change of tokens

    Printed: c = 1, for the paper's σ². R is the sample's ``input_norm``. The sums are over the
    heads; the chain of layers (C.10) takes products of norms that are already summed, which is
    larger.

    >>> from finetti.bounds.exchangeability import FullTransformer
    >>> network = FullTransformer.uniform(8, n_heads=1)
    >>> value = HeadsTokenConstant(network).evaluate(Sample(1, 1))
    >>> round(value.value, 9)                                                # 1 + 2²
    5.0
    """

    name = "E-lemma-C.13"
    title = "Lipschitz constant of the heads in their tokens"
    statement = "‖MHA(X) − MHA(X̂)‖ ≤ ρ‖X − X̂‖, ρ = Σω^v + cR²Σ(ω^q+ω^k)²ω^v"
    citation = "Lemma C.13, zhang2022"
    quantity = "Lipschitz constant"
    printed_kind = "upper_bound"

    def _evaluate(self, sample: Sample) -> BoundValue:
        if self.form == "printed" and self.network.rbf_constant(sharp=True) > 1:
            raise self.refuse("σ² = 2d_p^{1/s} as printed", "itself, derived.")
        radius = Positive.of(sample.input_norm)
        link = heads_link(self.network.layers[0], radius, self.rule_per_head)
        scores = log_subtract(link.constant.log, min(link.value_norm, link.constant).log)
        parts = (
            Term("values", 1, "W_v", link.value_norm.log),
            Term("scores", 1, "W_q, W_k", float(scores)),
        )
        return self.value(sample, link.constant.log, summed(parts)[1])


class MovedBound(NetworkBound):
    """How far outputs move when every matrix moves by ``change`` times its mixed norm."""

    quantity = "deviation of the output"
    printed_kind = "unproven"

    change: float = norm_field(0.01, as_positive)


class HeadsDeviation(MovedBound):
    """‖MHA(X;W) − MHA(X;Ŵ)‖ ≤ RΣε^v + cR³Σω^v(ω^q + ω^k)(ε^q + ε^k) for the first layer's heads

    with ε = ``change``·R of each matrix. Printed: neither ω^v nor c (erratum 5).

    >>> from finetti.bounds.exchangeability import FullTransformer
    >>> network = FullTransformer.uniform(8, n_heads=1, norm=2.0)
    >>> value = HeadsDeviation(network, change=0.5).evaluate(Sample(1, 1))
    >>> round(value.value, 9)                                                # 1 + 2·4·2
    17.0
    """

    name = "E-lemma-C.11"
    title = "how far the heads move with their weights"
    statement = "‖MHA(X;W) − MHA(X;Ŵ)‖ ≤ RΣε^v + cR³Σω^v(ω^q+ω^k)(ε^q+ε^k)"
    citation = "Lemma C.11, zhang2022"

    def _evaluate(self, sample: Sample) -> BoundValue:
        radius = Positive.of(sample.input_norm)
        link = heads_link(self.network.layers[0], radius, self.rule_per_head)
        moved = radius * self.change
        sizes = (("W_v", link.values), ("W_q, W_k", link.scores))
        terms = [Term(self.quantity, 1, matrix, (size * moved).log) for matrix, size in sizes]
        return self.value(sample, *summed(terms))


class TransformerDeviation(MovedBound):
    """‖X_T − X̂_T‖ ≤ Σ_t (ρ̃_tε_{t,a} + ε_{t,w}) Π_{τ>t} ρ̃_τα̃_τ, matrix by matrix

    with ε = ``change``·R of each matrix, so that it is ``change``·R_T^trans R_T.

    >>> from finetti.bounds.exchangeability import FullTransformer
    >>> network = FullTransformer.uniform(2, 2, bandwidth=4.0)
    >>> value = TransformerDeviation(network, "sharp", change=0.5).evaluate(Sample(1, 1))
    >>> round(value.value, 9)                            # (6·2 + 2·5)/2, as in Lemma C.8
    11.0
    """

    name = "E-lemma-C.14"
    title = "how far the full Transformer moves with its weights"
    statement = "‖X_L − X̂_L‖ ≤ Σ_l (ρ̃_lε_{l,a} + ε_{l,w})·Π_{j>l} ρ̃_jα̃_j"
    citation = "Lemma C.14, zhang2022"

    def _evaluate(self, sample: Sample) -> BoundValue:
        log_size, parts = self.log_deviation(sample)
        shift = Positive.of(self.change).log
        moved = [replace(part, log_value=part.log_value + shift) for part in parts]
        return self.value(sample, log_size + shift, moved)
