"""What is known of a network: everything is measured on its weights."""

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.bounds.value import BoundValue
from finetti.core.numerics.extremes import largest_of
from finetti.display.card import Card, Table
from finetti.display.displayable import Displayable
from finetti.display.formatting import format_number, plural, short_text

EXACT_RTOL = 1e-9  # largest error in float64, relative to the largest value
MAX_ROUNDING_RTOL = 1e-3  # what rounding may do at worst, relative to the smallest value
USABLE_RTOL = 1e-2  # largest error of a precision that can be used
NORM_RTOL = 1 + 1e-9
MAX_NAMED_BITS = 16
MAX_LISTED_GATES = 24


def plain_fields(owner: Any, *more: str) -> dict[str, Any]:
    """The fields of a dataclass, and properties of it, as plain data for JSON, which has no
    infinity."""
    values = {name: getattr(owner, name) for name in (*(f.name for f in fields(owner)), *more)}
    return {name: _plain(value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return value.to_dict() if hasattr(value, "to_dict") else value


@dataclass(frozen=True, eq=False)
class Counterexample:
    """An input at which the network is wrong.

    Args:
        bits: the input, shape (T,).
        output: what the network says.
        value: what the rule says.
    """

    bits: NDArray[np.uint8]
    output: float
    value: float

    @property
    def ones(self) -> tuple[int, ...]:
        """Where the input is 1."""
        return tuple(map(int, np.flatnonzero(self.bits)))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"ones": list(self.ones), "network": _plain(self.output), "rule": self.value}

    def __str__(self) -> str:
        ones = ", ".join(f"x{i}" for i in self.ones[:12])
        more = f" and {len(self.ones) - 12} more" if len(self.ones) > 12 else ""
        where = f"{ones}{more} = 1, the rest 0" if self.ones else "all bits 0"
        return f"at {where}: the network says {self.output:.6g}, the rule {self.value:.6g}"


@dataclass(frozen=True, eq=False, repr=False)
class Check:
    """What a verification ran and found.

    Args:
        method: what was run, in words.
        n_inputs: how many inputs.
        complete: whether these are all 2^T.
        error64: the largest error in float64, relative to the largest value of the rule; values lie
            within a factor of 10⁶, so that 1e-9 of the largest is a thousandth of the smallest.
        error32: the largest error in float32, relative to the value that the rule has there (where
            it is 0, to its smallest value that is not).
        counterexample: the worst input, if the network is wrong in float64.
        error_bound: the error on ALL 2^T inputs is at most this, however sums are taken; None where
            that was not computed, for the ``reason``.
        tolerance: what counts as exact, 1e-9 unless another was asked for, with what rounding makes
            of the sums.
        reason: why there is no proof, in half a sentence; empty if there is one.
        rounding: how far sums in another order may move a value at worst, relative to the smallest
            value of the rule; 0 where that is less than exact.
    """

    method: str
    n_inputs: int
    complete: bool
    error64: float
    error32: float
    counterexample: Counterexample | None
    error_bound: float | None = None
    tolerance: float = EXACT_RTOL
    reason: str = ""
    rounding: float = 0.0

    @property
    def exact(self) -> bool:
        """Whether no input was wrong."""
        return self.counterexample is None

    @property
    def proven(self) -> bool:
        """Whether the network is exact on all 2^T inputs: all were run, or the bound says so; and
        whether it stays so when its sums are taken in another order."""
        bound = self._largest_error
        bounded = bound is not None and bound <= self.tolerance
        return self.exact and bounded and self.rounding <= MAX_ROUNDING_RTOL

    @property
    def _largest_error(self) -> float | None:
        """On all inputs, if it is known: where all were run, what was seen."""
        return self.error64 if self.complete else self.error_bound

    @property
    def usable32(self) -> bool:
        """Whether float32 gets every input right that was run, up to a hundredth; or errs no more
        than float64 does, which is not its fault."""
        return self.error32 <= largest_of(USABLE_RTOL, 2 * self.error64)

    def __repr__(self) -> str:
        verdict = "proven" if self.proven else "not proven" if self.exact else "wrong"
        return f"<Check: {verdict}; {self.method}; error {self.error64:.2g}>"

    @property
    def why_not(self) -> str:
        """Why the network is not proven, in half a sentence."""
        if self.rounding > MAX_ROUNDING_RTOL:
            return f"rounding alone may move its value by {self.rounding:.3g}"
        if self.complete:
            return f"its error is {self.error64:.3g}, and rounding may be the reason"
        if self.reason or self.error_bound is None:
            return self.reason or "no bound was computed"
        return f"the error is bounded by {format_bound(self.error_bound)} only"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        unproven = self.exact and not self.proven
        found = {
            "method": self.method,
            "n_inputs": self.n_inputs,
            "complete": self.complete,
            "exact": self.exact,
            "proven": self.proven,
            "why_not_proven": self.why_not if unproven else None,
            "error_float64": self.error64,
            "error_float32": self.error32,
            "float32_usable": self.usable32,
            "error_bound": self._largest_error,
            "tolerance": self.tolerance,
            "rounding": self.rounding,
            "counterexample": self.counterexample,
        }
        return {name: _plain(value) for name, value in found.items()}


@dataclass(frozen=True)
class NormBound:
    """One norm and its bound.

    Args:
        name: of the norm, in the paper's symbols; the largest over the heads.
        value: as measured.
        bound: as the lemma gives it, derived form.
        source: the lemma, and whether its bound used the measured gap because the coherence is
            too large for the bound a priori.
    """

    name: str
    value: float
    bound: float
    source: str

    @property
    def within(self) -> bool:
        """Whether the norm keeps its bound, up to rounding."""
        return self.value <= self.bound * NORM_RTOL

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return plain_fields(self, "within")


@dataclass(frozen=True)
class ReaderRow:
    """Why one reader, [CLS] or a gate, is right on every input, if what it reads is."""

    text: str  # what it computes
    level: int  # its block
    sparsity: int  # how many tokens it reads
    separation: float  # γ of the head with the least margin: how far apart its features are
    tolerance: float  # δ = γ/4, the noise that the lookup tolerates there
    head_error: float  # the largest distance of that head's feature from its point, over ALL inputs
    score_scale: float  # the largest R of its heads
    score_gap: float  # by how much the scores of what it reads exceed all others, at least
    attention_mass: float  # the least attention on what it should read

    @property
    def margin(self) -> float:
        """δ over the error: how many times larger it could be."""
        return math.inf if self.head_error == 0 else self.tolerance / self.head_error

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return plain_fields(self, "margin")


def _of_worst(name: str) -> Any:
    return property(lambda certificate: getattr(certificate.worst, name))


def _of_all(extreme: Any, name: str) -> Any:
    return property(lambda certificate: extreme(getattr(g, name) for g in certificate.gates))


@dataclass(frozen=True, eq=False, repr=False)
class Certificate(Displayable):
    """The proof beside the weights.

    Args:
        rule: as text.
        indices: the bits that matter; of gates, those that the rule names.
        context_length, embedding, basis, heads_per_block, width, n_parameters: the network.
        asked_margin: the margin that was asked for.
        check: what was run against the rule.
        route: the lemmas that built it.
        readers: which tokens read, in words.
        gates: one row per reader, [CLS] or the gates. Together they cover all 2^T inputs, level by
            level.
        norms: every norm beside its bound.
        capacities: of the classes that the heads of each block come from, at ε = δ of its lookup.

    `margin`, `separation`, `tolerance` and `head_error` are those of the worst reader; a margin of
    at least 1 proves the network on all 2^T inputs. `sparsity` and `score_scale` are the largest of
    all readers, `score_gap` and `attention_mass` the least.
    """

    rule: str
    indices: tuple[int, ...]
    context_length: int
    embedding: str
    basis: str
    heads_per_block: tuple[int, ...]
    width: int
    n_parameters: int
    asked_margin: float
    check: Check
    route: str
    readers: str
    gates: tuple[ReaderRow, ...]
    norms: tuple[NormBound, ...]
    capacities: tuple[BoundValue, ...]

    margin, separation = _of_worst("margin"), _of_worst("separation")
    tolerance, head_error = _of_worst("tolerance"), _of_worst("head_error")
    sparsity, score_scale = _of_all(max, "sparsity"), _of_all(max, "score_scale")
    score_gap, attention_mass = _of_all(min, "score_gap"), _of_all(min, "attention_mass")

    @property
    def worst(self) -> ReaderRow:
        """The reader with the least margin."""
        return min(self.gates, key=lambda gate: gate.margin)

    @property
    def depth(self) -> int:
        """L, the number of blocks."""
        return len(self.heads_per_block)

    @property
    def n_heads(self) -> int:
        """The heads of all blocks."""
        return sum(self.heads_per_block)

    @property
    def holds(self) -> bool:
        """Proven on all inputs, the margin asked for in every reader, all norms in their bounds."""
        kept = all(norm.within for norm in self.norms)
        return self.check.proven and self.margin >= self.asked_margin and kept

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        of_worst = ("separation", "tolerance", "head_error", "margin")
        of_all = ("sparsity", "score_scale", "score_gap", "attention_mass")
        return plain_fields(self, "depth", "n_heads", "holds", *of_worst, *of_all)

    def __repr__(self) -> str:
        rule, verdict = short_text(self.rule, 60), "holds" if self.holds else "does not hold"
        return f"<Certificate of {rule!r}: {verdict}, margin {self.margin:.3g}>"

    @property
    def _bits(self) -> str:
        bits = ", ".join(f"x{i}" for i in self.indices[:MAX_NAMED_BITS])
        if len(self.indices) > MAX_NAMED_BITS:
            bits += f" and {len(self.indices) - MAX_NAMED_BITS} more"
        bits = bits or "none: the rule is constant"
        most = f"; at most {plural(self.sparsity, 'source')} a gate"
        return bits if self.readers == "[CLS]" else bits + most

    def __card__(self) -> Card:
        network = (
            f"{describe_heads(self.heads_per_block)}, read by {self.readers}, width {self.width}, "
            f"{self.n_parameters} numbers"
        )
        which = f"all 2^{self.context_length} inputs" if self.check.proven else "what was tried"
        error = (
            f"{format_number(self.head_error)} at the worst of {which}; the lookup tolerates δ = "
            f"{format_number(self.tolerance)} (margin {format_number(self.margin)})"
        )
        scores = (
            f"R ≤ {format_number(self.score_scale)}, what is read leads by at least "
            f"{format_number(self.score_gap)}"
        )
        unusable = [("float32", "NOT usable: run this network in float64")]
        counts = ", ".join(value.text for value in self.capacities)
        fields = (
            ("network", network),
            ("built by", self.route),
            ("relevant bits", self._bits),
            *self._proof_fields,
            ("head's error", error),
            ("attention", f"≥ {format_number(100 * self.attention_mass)} % on what it should read"),
            ("scores", scores),
            ("error in float64", self.check.error64),
            ("error in float32", self.check.error32),
            *([] if self.check.usable32 else unusable),
            (
                "capacity",
                f"log N_∞(ε=δ) ≤ {counts} for all heads with the norms of each block "
                f"({self.capacities[0].citation})",
            ),
        )
        where = f"over {plural(self.context_length, 'bit')}, {self.embedding}, {self.basis}"
        deep = (
            "Blocks are covered one by one: the paper's bound for deep networks (Theorem A.17) is "
            "for layers without residuals.",
        )
        rows = tuple((n.name, n.value, n.bound, n.source, n.within) for n in self.norms)
        norms = Table("Norms", ("norm", "measured", "bound", "from", "kept"), rows)
        notes = deep if self.depth > 1 else ()
        title = f"{short_text(self.rule)}   {where}"
        return Card(title, fields, (*self._gate_table, norms), notes)

    @property
    def _proof_fields(self) -> tuple[tuple[str, str], ...]:
        """The inputs that were run, and all others."""
        check = self.check
        verdict = "exact" if check.exact else f"WRONG {check.counterexample}"
        if check.complete:
            proof = "all inputs were run"
        elif check.error_bound is None:
            proof = f"for no more than the inputs that were run: {check.why_not}"
        else:
            bound = format_bound(check.error_bound, digits=4)
            proof = f"error ≤ {bound} on all 2^{self.context_length} inputs"
        proven = "proven" if check.proven else "NOT proven"
        return ("verified", f"{verdict} on {check.method}"), (proven, proof)

    @property
    def _gate_table(self) -> tuple[Table, ...]:
        """A row per gate; [CLS] alone needs none."""
        if len(self.gates) == 1:
            return ()
        listed = list(enumerate(self.gates))
        if len(listed) > MAX_LISTED_GATES:  # the last ones are those at the top
            listed = listed[: MAX_LISTED_GATES - 4] + listed[-4:]
        rows = [
            (
                gate.level,
                f"g{k} = {short_text(gate.text, 48)}",
                gate.sparsity,
                gate.head_error,
                gate.tolerance,
                gate.score_scale,
                gate.score_gap,
                gate.attention_mass,
            )
            for k, gate in listed
        ]
        left = len(self.gates) - len(listed)
        title = "Gates" + (f" ({left} of {len(self.gates)} are not listed)" if left else "")
        columns = ("block", "gate", "reads", "error", "δ", "R", "lead", "attention")
        return (Table(title, columns, tuple(rows)),)


def describe_heads(heads_per_block: tuple[int, ...]) -> str:
    """The blocks of a network and their heads.

    >>> describe_heads((1,)), describe_heads((2, 1))
    ('1 block, 1 head', '2 blocks, 2 + 1 heads')
    """
    heads = " + ".join(map(str, heads_per_block))
    thing = "head" if heads == "1" else "heads"
    return f"{plural(len(heads_per_block), 'block')}, {heads} {thing}"


def format_bound(number: float, digits: int = 3) -> str:
    """An upper bound as text that is still one.

    >>> format_bound(0.0140059), format_bound(0.5), format_bound(7.2e-12)
    ('0.0141', '0.5', '7.2e-12')
    """
    text = f"{number:.{digits}g}"
    if float(text) >= number:
        return text
    unit = 10.0 ** (math.floor(math.log10(number)) - digits + 1)
    return f"{number + unit / 2:.{digits}g}"
