"""How rich the class of a checkpoint is: the papers' theorems and ours, side by side."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from finetti.audit.capacity.block_chain import COVERS, block_network, check_design, token_radius
from finetti.audit.capacity.fine_tuning import Place, WeightDelta, tuned_network
from finetti.audit.capacity.nearest_class import (
    NEAREST_E,
    NEAREST_S,
    left_assumptions,
    projected_class,
    residual_class,
)
from finetti.audit.measures.measurements import Audit
from finetti.bounds import Bound, BoundValue, RadiusGrid, RoundedClass, Sample, Term
from finetti.bounds.exchangeability import FullTransformerCovering, TransformerRisk
from finetti.bounds.ours import BlocksCovering, BlocksGap
from finetti.bounds.sparse_variables import (
    ProjectedTransformerCovering,
    ProjectedTransformerGap,
)
from finetti.bounds.value import finite
from finetti.core.arguments import as_positive, as_whole
from finetti.core.errors import UnsupportedError
from finetti.display.card import Card, Table
from finetti.display.displayable import Displayable

RESOLUTION = 0.1
TUNING = "fine-tuning: base + Δ"
BEFORE_ROUNDING = "fine-tuning before rounding: base + Δ of low rank"
NEAREST_TUNING = (
    "W₀ + Δ before this sum was rounded to be stored, with the rank of Δ fixed before training, as "
    "that of a LoRA that was merged; the row of the adapter itself is of this class"
)
LENGTHS = (16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576)
READOUT = (
    "A trained vector of length {norm:g} reads one number from a token, or from a mean of tokens."
)
PAPERS = (("S", "Theorem A.17 (S)", NEAREST_S), ("E", "Theorem C.4 (E)", NEAREST_E))
VACUOUS = "vacuous"
_LOG_10 = math.log(10)


@dataclass(frozen=True)
class CapacityRow:
    """One way to bound a network: its capacity, the gap at n samples, and the samples it asks for.

    Args:
        name: as people call it.
        covering: log N(ε), where the theorem has it.
        gap: at the sample.
        needed: samples for the gap that was asked for.
        post_hoc: what choosing the class after training adds to log(3/δ), for ``n_radii`` radii.
        leaves: assumptions of the theorem that the network leaves; then the values are those of
            the ``nearest`` class.
        refused: why there are no values.
        growth: log N(ε) for every context length, as logarithms.
    """

    name: str
    covering: BoundValue | None = None
    gap: BoundValue | None = None
    needed: BoundValue | None = None
    post_hoc: float = 0.0
    n_radii: int = 0
    leaves: tuple[str, ...] = ()
    nearest: str = ""
    refused: str = ""
    growth: tuple[float, ...] = ()

    @property
    def terms(self) -> tuple[Term, ...]:
        """Layers and matrices by their part of log N."""
        return () if self.covering is None else self.covering.terms

    @property
    def samples(self) -> str | None:
        """The samples needed, as text."""
        return None if self.needed is None else self.needed.text

    @property
    def label(self) -> str:
        """The name, with "nearest class" where the values are not those of the network."""
        return f"{self.name}, nearest class" if self.nearest else self.name

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        values = {"covering": self.covering, "gap": self.gap, "needed": self.needed}
        return {
            "name": self.name,
            **{name: value and value.to_dict() for name, value in values.items()},
            "post_hoc": self.post_hoc,
            "n_radii": self.n_radii,
            "leaves": list(self.leaves),
            "nearest_class": self.nearest or None,
            "refused": self.refused or None,
            "growth": [finite(value) for value in self.growth],
        }


@dataclass(frozen=True)
class Capacity(Displayable):
    """All rows for one checkpoint."""

    name: str
    rows: tuple[CapacityRow, ...]
    sample: Sample
    wanted: float
    lengths: tuple[int, ...]
    labels: tuple[str, ...]  # of the layers, which terms count from 1
    tables: tuple[str, ...] = ()  # of embeddings
    notes: tuple[str, ...] = ()
    log_lipschitz: float | None = None
    n_parameters: int = 0

    def row(self, name: str) -> CapacityRow:
        """The row of this name."""
        return next(each for each in self.rows if each.name == name)

    @property
    def best(self) -> CapacityRow | None:
        """Of the rows that cover the network itself, the one that asks for the fewest samples."""
        found = [each for each in self.rows if not each.nearest and each.name != TUNING]
        found = [each for each in found if each.needed is not None]
        return min(found, key=_log_needed, default=None)

    def place(self, term: Term) -> tuple[str, str]:
        """A term's layer, as the checkpoint numbers it, and its matrix."""
        matrix = term.matrix or term.name
        if matrix.startswith("embedding ") and self.tables:
            return "embeddings", self.tables[int(matrix.removeprefix("embedding ")) - 1]
        if term.layer is None:
            return ("readout" if matrix in ("w", "readout") else "outside"), matrix
        return f"layer {self.labels[(term.layer - 1) % len(self.labels)]}", matrix

    def shares(self, row: CapacityRow, part: Callable[[str, str], Any]) -> dict[Any, float]:
        """log N summed over the terms with the same ``part`` of their layer and matrix."""
        found: dict[Any, float] = {}
        for term in row.terms:
            where = part(*self.place(term))
            found[where] = found.get(where, 0.0) + (term.share or 0.0)
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "name": self.name,
            "context_length": self.sample.context_length,
            "n_samples": self.sample.n_samples,
            "gap": self.wanted,
            "delta": self.sample.delta,
            "resolution": RESOLUTION,
            "lengths": list(self.lengths),
            "log10_lipschitz": finite(_log10(self.log_lipschitz)),
            "rows": [row.to_dict() for row in self.rows],
            "notes": list(self.notes),
        }

    def table(self) -> Table:
        """A row per bound."""
        columns = (
            "bound",
            "of",
            "log₁₀ log N",
            "gap at n",
            "samples needed",
            "post-hoc",
        )
        rows = []
        for row in self.rows:
            of = "base + Δ" if row.name == TUNING else "this network"
            of = "nearest class" if row.nearest else of
            if row.covering is None:
                rows.append((row.name, "refused", None, None, None, None, None))
                continue
            assert row.gap is not None
            size = round(row.covering.log_value / _LOG_10, 2)
            top = self.largest(row)
            assert row.needed is not None
            needed = row.needed.number
            needed = float(needed) if isinstance(needed, int) and needed >= 10**7 else needed
            gap = VACUOUS if row.gap.vacuous else row.gap.number
            rows.append((row.name, of, size, gap, needed, row.post_hoc, top))
        title = f"Capacity at ε = {RESOLUTION:g}, and samples for a gap of {self.wanted:g}"
        return Table(title, (*columns, "most of it"), tuple(rows))

    def vacuous_note(self) -> str:
        """Which gaps say nothing at n; empty if all of them do say something."""
        known = [row for row in self.rows if row.gap is not None]
        names = [row.label for row in known if row.gap is not None and row.gap.vacuous]
        if not names:
            return ""
        by = "every bound" if len(names) == len(known) else ", ".join(names)
        return (
            f"At n = {self.sample.n_samples:,} samples the gap is vacuous by {by}: it is at least "
            f"{self.sample.loss_bound:g}, the range of the loss, which says nothing. What such "
            "bounds compare is how fast their demands grow."
        )

    def largest(self, row: CapacityRow) -> str | None:
        """Which matrix adds most to log N, and how much of it; None where nothing does."""
        if row.covering is None or row.covering.log_value == -math.inf:
            return None
        shares = self.shares(row, lambda layer, matrix: (layer, _kind(matrix)))
        (layer, matrix), share = max(shares.items(), key=lambda each: each[1])
        return f"{layer}, {matrix}: {100 * share:.3g} %"

    def growth_table(self) -> Table:
        """log₁₀ log N for every context length."""
        rows = [row for row in self.rows if row.growth]
        columns = ("context length", *(row.label for row in rows))
        body = [
            (length, *(f"{row.growth[i] / _LOG_10:.4f}" for row in rows))
            for i, length in enumerate(self.lengths)
        ]
        return Table("log₁₀ log N for every context length", columns, tuple(body))

    def left_table(self) -> Table | None:
        """Assumptions that the network leaves, by theorem."""
        rows = []
        for row in self.rows:
            said = [*row.leaves, *([f"refused: {row.refused}"] if row.refused else [])]
            rows += [("" if i else row.name, each) for i, each in enumerate(said)]
        return (
            Table("Assumptions that this network leaves", ("bound", "assumes"), tuple(rows))
            if rows
            else None
        )

    def __card__(self) -> Card:
        sample = self.sample
        fields = (
            ("context length", sample.context_length),
            ("samples n", sample.n_samples),
            ("δ", sample.delta),
            ("Lipschitz constant", _power(self.log_lipschitz)),
        )
        left = self.left_table()
        tables = (self.table(), *(() if left is None else (left,)))
        vacuous = self.vacuous_note()
        notes = (*((vacuous,) if vacuous else ()), *self.notes)
        return Card(f"Capacity of {self.name}", fields, tables, notes)


def _log10(log_value: float | None) -> float:
    return math.nan if log_value is None else log_value / _LOG_10


def _power(log_value: float | None) -> str | None:
    return None if log_value is None else f"10^{log_value / _LOG_10:.1f}"


def _kind(matrix: str) -> str:
    """ "W_QK, head 3" is one of the W_QK."""
    return matrix.partition(", head")[0]


def measure_capacity(
    audit: Audit,
    *,
    context_length: int = 512,
    n_samples: int = 10_000,
    gap: float = 0.1,
    delta: float = 0.05,
    readout_norm: float = 1.0,
    input_norm: float = 1.0,
    base: Audit | None = None,
    moved: Mapping[Place, WeightDelta] | None = None,
) -> Capacity:
    """The count of parameters and covers without T, for one checkpoint; after them Theorem A.17 and
    paper E, for the nearest class that they cover.

    The loss lies in [0, 1] and is 1-Lipschitz. Every norm is rounded up to a grid that was fixed
    before training, which costs the ``post_hoc`` term of each row.

    Args:
        audit: of `measure_checkpoint`.
        context_length: T.
        n_samples: n, independent sequences.
        gap: between training and test error, for which samples are counted.
        delta: δ, with which probability a bound may fail.
        readout_norm: B_w, of the vector that makes a number of a token.
        input_norm: how long tokens are, where the checkpoint has no table of them.
        base: the audit of what training began with, for one more row: the class base + Δ.
        moved: with it, how far which weights moved; see `tuned_network`.
    """
    owner = "measure_capacity"
    sample = Sample(as_whole(n_samples, "n_samples", owner), context_length, delta=delta)
    wanted = sample.check_gap(gap, owner)
    sample = replace(sample, input_norm=as_positive(input_norm, "input_norm", owner))
    lengths = tuple(sorted({*LENGTHS, sample.context_length}))

    def row(name: str, make: Callable[..., Built], *arguments: Any) -> CapacityRow:
        return _row(name, lambda: make(*arguments, sample), wanted, lengths)

    rows = [row("parameter count", _blocks, audit, readout_norm, "together")]
    rows += [row(name, _blocks, audit, readout_norm, name) for name in COVERS]
    if base is not None:
        rows.append(row(TUNING, _tuned, base, moved or {}, readout_norm))
    rows += [
        replace(
            row(name, _of_paper, audit, readout_norm, paper),
            leaves=left_assumptions(audit, paper),
            nearest=nearest,
        )
        for paper, name, nearest in PAPERS
    ]
    rounded = {k: each for k, each in (moved or {}).items() if each.rank_before_rounding}
    if base is not None and rounded:
        low = {k: replace(each, rank=each.rank_before_rounding) for k, each in rounded.items()}
        made = row(BEFORE_ROUNDING, _tuned, base, {**(moved or {}), **low}, readout_norm)
        rows.append(replace(made, leaves=(_low_rank(low.values()),), nearest=NEAREST_TUNING))
    log_lipschitz = None
    if not audit.design.refused:
        network = block_network(audit, readout_norm)
        log_lipschitz = network.propagate_tokens(sample).log_lipschitz
    return Capacity(
        audit.name,
        tuple(rows),
        sample,
        wanted,
        lengths,
        tuple(layer.label for layer in audit.layers),
        tuple(name for name in audit.embeddings if name != "unembedding"),
        (*_prices(rows), *_notes(audit, readout_norm, sample, input_norm)),
        log_lipschitz,
        audit.n_parameters,
    )


def _prices(rows: Sequence[CapacityRow]) -> Iterator[str]:
    """Where the smallest of all covers asks for more than one of them: it pays for more radii."""
    found = {row.name: row for row in rows if row.name in COVERS and row.needed is not None}
    if len(found) < len(COVERS):
        return
    chosen = found.pop("smallest")
    best = min(found.values(), key=_log_needed)
    if _log_needed(best) < _log_needed(chosen):
        yield (
            f"smallest asks for more samples than {best.name}, {chosen.samples} and "
            f"{best.samples}: its class is bounded by more norms, and each that is chosen after "
            f"training is paid for, {chosen.n_radii:,} radii (post-hoc {chosen.post_hoc:.4g}) "
            f"against {best.n_radii:,} ({best.post_hoc:.4g})."
        )


def _log_needed(row: CapacityRow) -> float:
    return math.inf if row.needed is None else row.needed.log_value


def _notes(audit: Audit, readout_norm: float, sample: Sample, input_norm: float) -> Any:
    yield READOUT.format(norm=readout_norm)
    tables = [name for name in audit.embeddings if name != "unembedding"]
    if not tables:
        yield f"No table of embeddings was read: tokens are given, of length {input_norm:g}."
    for each in audit.design.assumed:
        yield f"Assumed: {each}; config.json does not say it."
    for name in tables:
        rows = int(audit.embeddings[name]["rows"])
        if ("position" in name or name == "wpe") and sample.context_length > rows:
            yield (
                f"The table of positions has {rows} rows: at {sample.context_length} tokens this "
                "network needs a longer one."
            )
    if any(name == "unembedding" for name in audit.embeddings) or audit.tied:
        yield "The matrix that makes words of the last layer's output is not part of the chain."


Built = tuple[Bound, Bound, RoundedClass[Any], Sample]


def _blocks(audit: Audit, readout_norm: float, name: str, sample: Sample) -> Built:
    check_design(audit)
    known = ("frobenius_norm", "nuclear_norm") if name == "together" else COVERS[name]
    return _of_network(block_network(audit, readout_norm, known), sample, name == "together")


def _tuned(
    base: Audit, moved: Mapping[Place, WeightDelta], readout_norm: float, sample: Sample
) -> Built:
    return _of_network(tuned_network(base, moved, readout_norm), sample)


def _low_rank(moved: Collection[WeightDelta]) -> str:
    """What the class before rounding assumes."""
    ranks = sorted({each.rank for each in moved if each.rank is not None})
    text = f"{ranks[0]}" if len(ranks) == 1 else f"{ranks[0]} to {ranks[-1]}"
    count = f"{len(moved)} {'matrix' if len(moved) == 1 else 'matrices'}"
    return f"Δ of rank {text} in {count}, and here the rounding of stored numbers makes it larger"


def _of_network(network: Any, sample: Sample, together: bool = False) -> Built:
    """The bounds of a chain of blocks, its radii rounded up to the grid."""
    cover: Any = "together" if together else "apart"
    gap = BlocksGap(network, "stratified", cover=cover)
    covering = BlocksCovering(gap.rounding.rounded, RESOLUTION, cover=cover)
    return covering, gap, gap.rounding, sample


def _of_paper(audit: Audit, readout_norm: float, paper: str, sample: Sample) -> Built:
    """Those of the nearest class; tokens are as long as before the first layer."""
    check_design(audit)
    sample = replace(sample, input_norm=token_radius(audit, sample.input_norm))
    if paper == "S":
        gap = ProjectedTransformerGap(projected_class(audit, readout_norm), "stratified")
        covering = ProjectedTransformerCovering(gap.rounding.rounded, RESOLUTION)
        return covering, gap, gap.rounding, sample
    rounding = RadiusGrid().round_norms(residual_class(audit))
    covering = FullTransformerCovering(rounding.rounded, resolution=RESOLUTION)
    return covering, TransformerRisk(rounding.rounded, post_hoc=rounding.post_hoc), rounding, sample


def _row(
    name: str, make: Callable[[], Built], wanted: float, lengths: tuple[int, ...]
) -> CapacityRow:
    """All values, or why there are none."""
    try:
        covering, gap, rounding, sample = make()
        growth = tuple(
            covering.evaluate(replace(sample, context_length=length)).log_value
            for length in lengths
        )
        return CapacityRow(
            name,
            covering.evaluate(sample),
            gap.evaluate(sample),
            gap.samples_needed(wanted, sample),
            rounding.post_hoc,
            len(rounding.radii),
            growth=growth,
        )
    except UnsupportedError as error:
        return CapacityRow(name, refused=str(error))
