"""F-cover-length: capacity that does not see the context length, beside Theorem A.17."""

import math
from dataclasses import replace

import numpy as np

from finetti.bounds import Sample, ours
from finetti.bounds import sparse_variables as theirs
from finetti.bounds.ours.block_theorems import projected_composition
from finetti.claims.claim import CheckMethod, Context, claim
from finetti.claims.evidence import Evidence, at_least, at_most, trend, within
from finetti.claims.measures import RATIO_RTOL
from finetti.core.numerics.extremes import smallest_of

_WIDTH, _RESOLUTION, _SAMPLES = 8192, 0.5, 100
_LENGTHS = tuple(10**k for k in range(13))


def _network(width: int, size: float = 1.0, column: float = 1.0) -> theirs.TransformerClass:
    """One layer with all spectral norms alike, and all columns."""
    columns = dict.fromkeys(("output_column_norm", "value_column_norm", "score_row_norm"), column)
    norms = dict.fromkeys(("output_norm", "value_norm", "score_norm"), size)
    layer = theirs.ProjectedLayerNorms(**norms, **columns)
    return theirs.TransformerClass(layers=(layer,), width=width, readout_norm=size)


def _counted(composition: ours.LengthFreeComposition) -> ours.LengthFreeComposition:
    """By the parameters alone, without the norm of columns."""
    parts = [
        replace(each, weights=replace(each.weights, frobenius_norm=None))
        if isinstance(each.weights, ours.MatrixWeights)
        else each
        for each in composition.parts
    ]
    return ours.LengthFreeComposition(tuple(parts))


def _least_ratio(rng: np.random.Generator, count: int) -> float:
    """Theorem A.17 for one sequence of one token / ours, ε at most the largest output."""
    least, names = math.inf, ("output_norm", "value_norm", "score_norm")
    longest = ("output_column_norm", "value_column_norm", "score_row_norm")
    for _ in range(count):
        width, layers = int(2 ** rng.uniform(1, 12)), []
        for _ in range(int(rng.integers(1, 4))):
            sizes = 10.0 ** rng.uniform(-1.5, 1, size=3)
            columns = sizes * float(width) ** -rng.uniform(0, 0.5, size=3)
            norms = zip((*names, *longest), (*sizes, *columns), strict=True)
            layers.append(theirs.ProjectedLayerNorms(**dict(norms)))
        readout, length = (10.0 ** rng.uniform(-1, 1, size=2)).tolist()
        network = theirs.TransformerClass(layers=tuple(layers), width=width, readout_norm=readout)
        sample = Sample(1, 1, input_norm=length)
        resolution = math.exp(network.log_range(sample)) * 10.0 ** -rng.uniform(0, 2)
        known = theirs.ProjectedTransformerCovering(network, resolution).evaluate(sample)
        smallest = ours.ProjectedLengthFreeCovering(network, resolution).evaluate(sample)
        least = smallest_of(least, math.exp(known.log_value - smallest.log_value))
    return least


def _two_layers(first_output: float) -> np.ndarray:
    """Layers without scores over equal tokens 0.1e₁: all read all of them, W_C and then 5I."""
    tokens = np.tile([0.1, 0.0, 0.0], (3, 1))
    for values, outputs in ((1.0, first_output), (5.0, 1.0)):
        for factor in (values, outputs):
            tokens = factor * tokens.mean(axis=0, keepdims=True)
            tokens = tokens / np.maximum(1.0, np.linalg.norm(tokens, axis=1, keepdims=True))
    return tokens


def _used_multiplier() -> float:
    """What two layers move by while W_C of the first moves by 0.05, over what is allowed."""
    layers = (
        theirs.ProjectedLayerNorms(score_norm=0.0),
        theirs.ProjectedLayerNorms(value_norm=5.0, score_norm=0.0),
    )
    pair = theirs.TransformerClass(layers=layers, width=3)
    allowed = 0.05 * math.exp(pair.log_multipliers(Sample(1, 2, input_norm=0.1))[1])
    return float(np.linalg.norm(_two_layers(1.05) - _two_layers(1.0))) / allowed


@claim(
    id="F-cover-length",
    title="capacity whatever the context length",
    statement="With every matrix covered in spectral norm, the covering number of the class holds "
    "for all inputs at once and has no T. Counting parameters alone it crosses Theorem A.17, which "
    "grows with log T; with the smallest of the covers it lies below on random classes already at "
    "T = 1, unless norms are so small that ε exceeds all outputs.",
    formula="log N(ε) ≤ Σ_j log N_j(x_j),  Σ_j a_j ρ_j x_j = ε",
    label="covers without T",
    check=CheckMethod.TIGHT,
    rejects="a multiplier a_j larger or smaller by a factor of 1.021, as where later layers do not "
    "amplify errors",
)
def f_cover_length(context: Context) -> Evidence:
    """The crossing with S-thm-A.17, random classes at T = 1, and a tight multiplier.

    A layer of width 8192 with columns as short as spectral norms of 1 allow, n = 100, ε = 0.5.
    """
    wide = _network(_WIDTH, column=1 / math.sqrt(_WIDTH))
    composition = projected_composition(wide, Sample(1, 1))
    counted = math.exp(_counted(composition).log_log_cover(math.log(_RESOLUTION)))
    bound = ours.ProjectedLengthFreeCovering(wide, _RESOLUTION)
    paper = theirs.ProjectedTransformerCovering(wide, _RESOLUTION)
    samples = [Sample(_SAMPLES, length) for length in _LENGTHS]
    smallest = [bound.evaluate(sample).value for sample in samples]
    known = [paper.evaluate(sample).value for sample in samples]

    tiny = _network(64, 0.01, 0.01)
    small = [
        theirs.ProjectedTransformerCovering(tiny, 0.1).evaluate(sample).log_value
        - ours.ProjectedLengthFreeCovering(tiny, 0.1).evaluate(sample).log_value
        for sample in (samples[0], samples[-1])
    ]
    count = context.pick(quick=60, paper=1000)
    least = _least_ratio(context.draws(), count)
    lines = {
        "Theorem A.17": known,
        "counted, no T": [counted] * 13,
        "smallest cover, no T": smallest,
    }
    records = [
        {"length": length, "value": value, "bound": name}
        for name, values in lines.items()
        for length, value in zip(_LENGTHS, values, strict=True)
    ]
    axes = {"length": "context length T", "value": "log N"}
    return Evidence(
        at_most("Theorem A.17 / counted, T = 1", known[0] / counted, 1.0),
        at_least("Theorem A.17 / counted, T = 10¹²", known[-1] / counted, 1.0),
        at_least("Theorem A.17 / smallest cover, T = 1", known[0] / smallest[0], 1.0),
        at_least(f"{count} random classes, T = 1: least ratio", least, 1.0),
        at_most("norms 0.01: log(Theorem A.17 / ours), T = 1", small[0], 0.0),
        at_least("the same, T = 10¹²", small[1], 0.0),
        within("two layers: change / multiplier", _used_multiplier(), 0.98, 1 + RATIO_RTOL),
        charts=[trend(records, axes, "Capacity and context length", color="bound", log_y=True)],
        note=f"Counted, log N is {counted:.4g}; Theorem A.17 goes from {known[0]:.4g} at T = 1 to "
        f"{known[-1]:.4g} at T = 10¹²; the smallest covers give {smallest[0]:.4g}.",
    )
