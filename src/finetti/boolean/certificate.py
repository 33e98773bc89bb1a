"""What is known of a network, all of it measured on its weights."""

from dataclasses import dataclass
from typing import Any

from finetti.boolean.check import Check, finite_or_none, format_bound
from finetti.boolean.findings import NormBound, ReaderProof
from finetti.boolean.words import counted, counted_heads, short_text
from finetti.bounds.value import BoundValue
from finetti.display.card import Card, Table
from finetti.display.displayable import Displayable
from finetti.display.formatting import format_number

MAX_NAMED_BITS = 16
MAX_LISTED_GATES = 24
PLAIN = (
    *("rule", "indices", "sparsity", "context_length", "embedding", "basis", "depth", "n_heads"),
    *("heads_per_block", "width", "n_parameters", "route", "holds", "asked_margin"),
)
NUMBERS = (
    *("separation", "tolerance", "head_error", "margin", "score_scale", "score_gap"),
    "attention_mass",
)
LISTS = ("gates", "norms", "capacities")


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
        route, readers, norms, capacities: see `NetworkEvidence`.
        gates: one proof per reader, [CLS] or the gates. Together they cover all 2^T inputs, level
            by level.

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
    gates: tuple[ReaderProof, ...]
    norms: tuple[NormBound, ...]
    capacities: tuple[BoundValue, ...]

    margin, separation = _of_worst("margin"), _of_worst("separation")
    tolerance, head_error = _of_worst("tolerance"), _of_worst("head_error")
    sparsity, score_scale = _of_all(max, "sparsity"), _of_all(max, "score_scale")
    score_gap, attention_mass = _of_all(min, "score_gap"), _of_all(min, "attention_mass")

    @property
    def worst(self) -> ReaderProof:
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
        found = {name: getattr(self, name) for name in PLAIN}
        plain = {name: list(v) if isinstance(v, tuple) else v for name, v in found.items()}
        numbers = {name: finite_or_none(getattr(self, name)) for name in NUMBERS}
        lists = {name: [each.to_dict() for each in getattr(self, name)] for name in LISTS}
        return plain | numbers | lists | {"check": self.check.to_dict()}

    def __repr__(self) -> str:
        rule, verdict = short_text(self.rule, 60), "holds" if self.holds else "does not hold"
        return f"<Certificate of {rule!r}: {verdict}, margin {self.margin:.3g}>"

    @property
    def _bits(self) -> str:
        bits = ", ".join(f"x{i}" for i in self.indices[:MAX_NAMED_BITS])
        if len(self.indices) > MAX_NAMED_BITS:
            bits += f" and {len(self.indices) - MAX_NAMED_BITS} more"
        bits = bits or "none: the rule is constant"
        most = f"; at most {counted(self.sparsity, 'source')} a gate"
        return bits if self.readers == "[CLS]" else bits + most

    def __card__(self) -> Card:
        network = (
            f"{counted_heads(self.heads_per_block)}, read by {self.readers}, width {self.width}, "
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
        where = f"over {counted(self.context_length, 'bit')}, {self.embedding}, {self.basis}"
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
        rounded = () if check.proven or not check.rounded else (("rounded", check.rounded_text),)
        proven = "proven" if check.proven else "NOT proven"
        return ("verified", f"{verdict} on {check.method}"), (proven, proof), *rounded

    @property
    def _gate_table(self) -> tuple[Table, ...]:
        """A row per gate; [CLS] alone needs none."""
        if len(self.gates) == 1:
            return ()
        listed = list(enumerate(self.gates))
        if len(listed) > MAX_LISTED_GATES:  # the last ones are those at the top
            listed = listed[: MAX_LISTED_GATES - 4] + listed[-4:]
        shown = (
            "sparsity",
            "head_error",
            "tolerance",
            "score_scale",
            "score_gap",
            "attention_mass",
        )
        rows = [
            (g.level, f"g{k} = {short_text(g.text, 48)}", *(getattr(g, n) for n in shown))
            for k, g in listed
        ]
        left = len(self.gates) - len(listed)
        title = "Gates" + (f" ({left} of {len(self.gates)} are not listed)" if left else "")
        columns = ("block", "gate", "reads", "error", "δ", "R", "lead", "attention")
        return (Table(title, columns, tuple(rows)),)
