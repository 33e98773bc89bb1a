"""What bounds make of the norms of a checkpoint: the papers' theorems and ours, side by side."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from finetti.audit.capacity.block_chain import COVERS, block_network, check_design, token_radius
from finetti.audit.capacity.capacity_result import (
    RESOLUTION,
    TUNING,
    Capacity,
    CapacityRow,
    log_needed,
)
from finetti.audit.capacity.fine_tuning import Place, WeightDelta, tuned_network
from finetti.audit.capacity.nearest_class import (
    NEAREST_E,
    NEAREST_S,
    projected_class,
    residual_class,
    violated_assumptions,
)
from finetti.audit.measures.measurements import Audit
from finetti.bounds import Bound, RadiusGrid, RoundedClass, Sample
from finetti.bounds.exchangeability import FullTransformerCovering, TransformerRisk
from finetti.bounds.ours import BlockNetwork, BlocksCovering, BlocksGap
from finetti.bounds.sparse_variables import (
    ProjectedTransformerCovering,
    ProjectedTransformerGap,
)
from finetti.core.arguments import as_positive, as_whole
from finetti.core.errors import UnsupportedError

BEFORE_ROUNDING = "fine-tuning before rounding: base + Δ of low rank"
NEAREST_TUNING = (
    "W₀ + Δ before this sum was rounded to be stored, with the rank of Δ fixed before training, as "
    "that of a LoRA that was merged; the row of the adapter itself is of this class"
)
LENGTHS = (16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576)
READOUT = (
    "A trained vector of length {norm:g} reads one number from a token, or from a mean of tokens."
)


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
    """Return what bounds make of the norms of a checkpoint.

    The count of parameters and covers without T are for this network; after them come Theorem A.17
    and paper E, for the nearest class that they cover.

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
        moved: with it, how far which weights moved, as ``deltas`` of `compare_checkpoints`: by the
            label of a layer ("" beside the layers), and a role.
    """
    owner = "measure_capacity"
    sample = Sample(as_whole(n_samples, "n_samples", owner), context_length, delta=delta)
    wanted = sample.check_gap(gap, owner)
    sample = replace(sample, input_norm=as_positive(input_norm, "input_norm", owner))
    lengths = tuple(sorted({*LENGTHS, sample.context_length}))

    def row(name: str, make: Callable[..., _Bounds], *arguments: Any) -> CapacityRow:
        try:
            return _row(name, make(*arguments, sample), wanted, lengths)
        except UnsupportedError as error:
            return CapacityRow(name, refused=str(error))

    rows = [row("parameter count", _parameter_count, audit, readout_norm)]
    rows += [row(name, _cover, audit, readout_norm, name) for name in COVERS]
    if base is not None:
        rows.append(row(TUNING, _tuned, base, moved or {}, readout_norm))
    theorems = (
        ("S", "Theorem A.17 (S)", NEAREST_S, _theorem_s),
        ("E", "Theorem C.4 (E)", NEAREST_E, _theorem_e),
    )
    for paper, name, nearest, make in theorems:
        made = row(name, make, audit, readout_norm)
        violated = violated_assumptions(audit, paper)
        rows.append(replace(made, violates=violated, nearest=nearest))
    low = {
        place: replace(each, rank=each.rank_before_rounding)
        for place, each in (moved or {}).items()
        if each.rank_before_rounding
    }
    if base is not None and low:
        made = row(BEFORE_ROUNDING, _tuned, base, {**(moved or {}), **low}, readout_norm)
        rows.append(replace(made, violates=(_low_rank(low.values()),), nearest=NEAREST_TUNING))
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
        tuple(audit.tables),
        (*_prices(rows), *_notes(audit, readout_norm, sample, input_norm)),
        log_lipschitz,
        audit.n_parameters,
    )


@dataclass(frozen=True)
class _Bounds:
    """The two bounds of a row, the radii they are at, and the sample with the length of tokens."""

    covering: Bound
    gap: Bound
    rounding: RoundedClass[Any]
    sample: Sample
    grows: bool = False  # whether T is in the covering


def _parameter_count(audit: Audit, readout_norm: float, sample: Sample) -> _Bounds:
    network = block_network(audit, readout_norm, ("frobenius_norm", "nuclear_norm"))
    return _of_network(network, sample, "together")


def _cover(audit: Audit, readout_norm: float, name: str, sample: Sample) -> _Bounds:
    return _of_network(block_network(audit, readout_norm, COVERS[name]), sample)


def _tuned(
    base: Audit, moved: Mapping[Place, WeightDelta], readout_norm: float, sample: Sample
) -> _Bounds:
    return _of_network(tuned_network(base, moved, readout_norm), sample)


def _of_network(network: BlockNetwork, sample: Sample, cover: Any = "apart") -> _Bounds:
    """Return the bounds of a chain of blocks, its radii rounded up to the grid."""
    gap = BlocksGap(network, "stratified", cover=cover)
    covering = BlocksCovering(gap.rounding.rounded, RESOLUTION, cover=cover)
    return _Bounds(covering, gap, gap.rounding, sample)


def _theorem_s(audit: Audit, readout_norm: float, sample: Sample) -> _Bounds:
    sample = _before_the_layers(audit, sample)
    gap = ProjectedTransformerGap(projected_class(audit, readout_norm), "stratified")
    covering = ProjectedTransformerCovering(gap.rounding.rounded, RESOLUTION)
    return _Bounds(covering, gap, gap.rounding, sample, grows=True)


def _theorem_e(audit: Audit, readout_norm: float, sample: Sample) -> _Bounds:
    sample = _before_the_layers(audit, sample)
    rounding = RadiusGrid().round_norms(residual_class(audit))
    covering = FullTransformerCovering(rounding.rounded, resolution=RESOLUTION)
    gap = TransformerRisk(rounding.rounded, post_hoc=rounding.post_hoc)
    return _Bounds(covering, gap, rounding, sample)


def _before_the_layers(audit: Audit, sample: Sample) -> Sample:
    """Tokens as long as they can be before the first layer."""
    check_design(audit)
    return replace(sample, input_norm=token_radius(audit, sample.input_norm))


def _row(name: str, bounds: _Bounds, wanted: float, lengths: tuple[int, ...]) -> CapacityRow:
    sample = bounds.sample
    covering = bounds.covering.evaluate(sample)
    growth = [covering.log_value] * len(lengths)
    if bounds.grows:
        samples = (replace(sample, context_length=length) for length in lengths)
        growth = [bounds.covering.evaluate(each).log_value for each in samples]
    return CapacityRow(
        name,
        covering,
        bounds.gap.evaluate(sample),
        bounds.gap.samples_needed(wanted, sample),
        bounds.rounding.post_hoc,
        len(bounds.rounding.radii),
        growth=tuple(growth),
    )


def _prices(rows: Sequence[CapacityRow]) -> Iterator[str]:
    """Where the smallest of all covers asks for more than one of them: it pays for more radii."""
    found = {row.name: row for row in rows if row.name in COVERS and row.needed is not None}
    if len(found) < len(COVERS):
        return
    chosen = found.pop("smallest")
    best = min(found.values(), key=log_needed)
    if log_needed(best) < log_needed(chosen):
        yield (
            f"smallest asks for more samples than {best.name}, {chosen.samples} and "
            f"{best.samples}: its class is bounded by more norms, and each that is chosen after "
            f"training is paid for, {chosen.n_radii:,} radii (post-hoc {chosen.post_hoc:.4g}) "
            f"against {best.n_radii:,} ({best.post_hoc:.4g})."
        )


def _notes(audit: Audit, readout_norm: float, sample: Sample, input_norm: float) -> Any:
    yield READOUT.format(norm=readout_norm)
    tables = audit.tables
    if not tables:
        yield f"No table of embeddings was read: tokens are given, of length {input_norm:g}."
    for each in audit.design.assumed:
        yield f"Assumed: {each}; config.json does not say it."
    for name in tables:
        rows = int(tables[name]["rows"])
        if ("position" in name or name == "wpe") and sample.context_length > rows:
            yield (
                f"The table of positions has {rows} rows: at {sample.context_length} tokens this "
                "network needs a longer one."
            )
    if "unembedding" in audit.embeddings or audit.tied:
        yield "The matrix that makes words of the last layer's output is not part of the chain."


def _low_rank(moved: Collection[WeightDelta]) -> str:
    """Return what the class before rounding assumes."""
    ranks = sorted({each.rank for each in moved if each.rank is not None})
    text = f"{ranks[0]}" if len(ranks) == 1 else f"{ranks[0]} to {ranks[-1]}"
    count = f"{len(moved)} {'matrix' if len(moved) == 1 else 'matrices'}"
    return f"Δ of rank {text} in {count}, and here the rounding of stored numbers makes it larger"
