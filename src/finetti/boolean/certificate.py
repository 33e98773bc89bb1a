"""What is known of a compiled network, all of it measured on its weights."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from finetti.boolean.capacity import capacity
from finetti.boolean.check import Check, finite_or_none
from finetti.boolean.functions.symmetric import Symmetric
from finetti.boolean.functions.truth_table import TruthTable
from finetti.boolean.network.head_weights import HeadWeights
from finetti.boolean.network.lookup import Lookup
from finetti.boolean.network.worst_case import feature_ranges
from finetti.boolean.norms import NormBound, head_norms, lookup_norms
from finetti.boolean.routes import lookup_values
from finetti.boolean.trials import ALL_SETTINGS, choose_settings
from finetti.boolean.words import counted, short_text
from finetti.bounds.value import BoundValue
from finetti.core.errors import UnsupportedError
from finetti.core.keys import generator
from finetti.show.card import Card, Table
from finetti.show.numbers import format_number
from finetti.show.shown import Shown

MOST_BITS = 16  # that are listed by name


@dataclass(frozen=True, eq=False)
class Certificate(Shown):
    """The proof beside the weights.

    Args:
        rule: the rule, as text.
        indices: the bits that matter.
        context_length, embedding, basis, n_heads, width, n_parameters: the network.
        route: the lemmas that built it.
        separation: γ, how far apart the features of different answers are.
        tolerance: δ = γ/4, the noise that the lookup bears.
        head_error: the largest distance of a feature from its point, over ALL 2^T inputs.
        score_scale: R.
        score_gap: by how much scores of relevant tokens exceed all others.
        attention_mass: the least attention on what a head is meant to read, over all inputs.
        asked_margin: the margin that was asked for.
        norms: every norm beside its bound.
        check: what was run against the rule.
        capacity: Corollary 4.4 (or Lemma A.12) for the class with these norms.
    """

    rule: str
    indices: tuple[int, ...]
    context_length: int
    embedding: str
    basis: str
    n_heads: int
    width: int
    n_parameters: int
    route: str
    separation: float
    tolerance: float
    head_error: float
    score_scale: float
    score_gap: float
    attention_mass: float
    asked_margin: float
    norms: tuple[NormBound, ...]
    check: Check
    capacity: BoundValue

    @property
    def margin(self) -> float:
        """δ over the head's largest error: how many times larger it could be."""
        return math.inf if self.head_error == 0 else self.tolerance / self.head_error

    @property
    def holds(self) -> bool:
        """Proven on all inputs, the margin asked for, all norms in their bounds."""
        kept = all(norm.within for norm in self.norms)
        return self.check.proven and self.margin >= self.asked_margin and kept

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "rule": self.rule,
            "indices": list(self.indices),
            "sparsity": len(self.indices),
            "context_length": self.context_length,
            "embedding": self.embedding,
            "basis": self.basis,
            "n_heads": self.n_heads,
            "width": self.width,
            "n_parameters": self.n_parameters,
            "route": self.route,
            "holds": self.holds,
            "separation": self.separation,
            "tolerance": self.tolerance,
            "head_error": finite_or_none(self.head_error),
            "margin": self.margin if math.isfinite(self.margin) else None,
            "asked_margin": self.asked_margin,
            "score_scale": self.score_scale,
            "score_gap": self.score_gap if math.isfinite(self.score_gap) else None,
            "attention_mass": self.attention_mass,
            "norms": [norm.to_dict() for norm in self.norms],
            "check": self.check.to_dict(),
            "capacity": self.capacity.to_dict(),
        }

    def __card__(self) -> Card:
        heads = counted(self.n_heads, "head")
        bits = ", ".join(f"x{i}" for i in self.indices[:MOST_BITS]) or "none: the rule is constant"
        if len(self.indices) > MOST_BITS:
            bits += f" and {len(self.indices) - MOST_BITS} more"
        which = f"all 2^{self.context_length} inputs" if self.check.proven else "what was tried"
        worst = (
            f"{format_number(self.head_error)} at the worst of {which}; "
            f"the lookup bears δ = {format_number(self.tolerance)} (margin "
            f"{format_number(self.margin)})"
        )
        scores = (
            f"R = {format_number(self.score_scale)}, relevant tokens lead by "
            f"{format_number(self.score_gap)}"
        )
        count = self.capacity
        fields = (
            ("network", f"1 layer, {heads}, width {self.width}, {self.n_parameters} numbers"),
            ("built by", self.route),
            ("relevant bits", bits),
            *proof_fields(self.check, self.context_length),
            ("head's error", worst),
            ("attention", f"≥ {format_number(100 * self.attention_mass)} % on what it should read"),
            ("scores", scores),
            ("float64, float32 error", (self.check.error64, self.check.error32)),
            *single_precision(self.check),
            (
                "capacity",
                f"log N_∞(ε=δ) ≤ {count.text} for all heads with these norms ({count.citation})",
            ),
        )
        where = f"over {counted(self.context_length, 'bit')}, {self.embedding}, {self.basis}"
        title = f"{short_text(self.rule)}   {where}"
        return Card(title, fields, (norm_table(self.norms),))


def proof_fields(check: Check, context_length: int) -> tuple[tuple[str, str], ...]:
    """What a certificate says of the inputs that were run, and of all others."""
    verdict = "exact" if check.exact else f"WRONG {check.counterexample}"
    if check.complete:
        proof = "all inputs were run"
    elif check.error_bound is None:
        proof = f"for no more than the inputs that were run: {check.why_not}"
    else:
        proof = f"error ≤ {format_number(check.error_bound)} on all 2^{context_length} inputs"
    return (
        ("verified", f"{verdict} on {check.method}"),
        ("proven" if check.proven else "NOT proven", proof),
    )


def norm_table(norms: tuple[NormBound, ...]) -> Table:
    """Every norm beside its bound."""
    rows = [(n.name, n.value, n.bound, n.source, n.within) for n in norms]
    return Table("Norms", ("norm", "measured", "bound", "from", "kept"), tuple(rows))


def single_precision(check: Check) -> tuple[tuple[str, str], ...]:
    """What a certificate says of float32 where it cannot be used."""
    if check.usable32:
        return ()
    return (("float32", "NOT usable: run this network in float64"),)


def _attention(head: HeadWeights, indices: tuple[int, ...], scalar: bool) -> tuple[float, float]:
    """The least attention on what is meant to be read, and the least lead of its scores."""
    tables, mass, lead = head.tables, 1.0, math.inf
    if not indices:
        return 1.0, 0.0
    for each in range(head.n_heads):
        columns = tables.zero[:, each], tables.one[:, each], float(tables.cls[each])
        meant, least, others = head.embedding.reading(*columns, indices, scalar)
        mass = min(mass, meant / (meant + float(others.sum())) if meant > 0 else 0.0)
        top = float(others.max(initial=0.0))
        lead = min(lead, math.log(least / top) if top > 0 and least > 0 else math.inf)
    return mass, lead


def certify(
    head: HeadWeights,
    lookup: Lookup,
    function: Symmetric | TruthTable,
    check: Check,
    rule: str,
    basis: str,
    asked_margin: float = 1.0,
) -> Certificate:
    """Measure a network that was built for ``function`` (simplified) by this room's lemmas."""
    sparsity, scalar = function.sparsity, isinstance(function, Symmetric)
    n_features = head.output.shape[2]
    if n_features != (1 if scalar else sparsity):
        raise UnsupportedError(
            f"A network with {counted(n_features, 'feature')} was not built for a rule of "
            f"{counted(sparsity, 'bit')}, so no lemma certifies it. `verify` compares any "
            "network with any rule."
        )
    separation = head.embedding.separation(sparsity, scalar)
    tolerance = head.embedding.tolerance(sparsity, scalar)
    rng = generator("boolean certificate", head.context_length)
    settings, _ = choose_settings(sparsity, 2**ALL_SETTINGS, rng)
    points = head.embedding.points(settings, scalar)
    low, high = feature_ranges(head.tables, function.indices, settings)
    error = float(np.maximum(high - points, points - low).max())
    error = math.inf if math.isnan(error) else error  # unknown: no margin is claimed
    mass, lead = _attention(head, function.indices, scalar)
    values = lookup_values(function)
    radius = float(np.abs(points).max())
    form, route = ("B.5", "symmetric") if scalar else ("B.6", "general")
    lemma = head.embedding.lemma
    return Certificate(
        rule=rule,
        indices=function.indices,
        context_length=head.context_length,
        embedding=head.embedding.name,
        basis=basis,
        n_heads=head.n_heads,
        width=head.width,
        n_parameters=head.n_parameters + sum(each.size for each in lookup.arrays.values()),
        route=f"Lemmas {lemma} and {form} ({route} rule), lookup of Lemma B.8",
        separation=separation,
        tolerance=tolerance,
        head_error=error,
        score_scale=float(np.abs(head.query).max()),
        score_gap=lead,
        attention_mass=mass,
        asked_margin=asked_margin,
        norms=head_norms(head, function.indices, scalar, asked_margin)
        + lookup_norms(lookup, radius, tolerance, float(np.abs(values).max())),
        check=check,
        capacity=capacity(head, tolerance),
    )
