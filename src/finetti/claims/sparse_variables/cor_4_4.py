"""Corollary 4.4: the capacity of a head is logarithmic in the context length."""

from typing import Any

import numpy as np

from finetti.claims.claim import Claim, Context, Control, Evidence, at_most, close, within
from finetti.claims.perturbations import ROUNDING
from finetti.claims.sparse_variables.instances import score_change
from finetti.claims.sparse_variables.recomputed import composed, head_parts
from finetti.show.charts import line_chart

LENGTHS = tuple(10**k for k in range(1, 9))
HEADS = 50


def random_norms(rng: np.random.Generator) -> dict[str, float]:
    """The norms of one head, over three decades."""
    names = ("value_norm", "value_column_norm", "score_row_norm", "out_lipschitz")
    return dict(zip(names, (10.0 ** rng.uniform(-1.5, 1.5, size=4)).tolist(), strict=True))


def counted(described: Any, norms: Any, sample: Any) -> float:
    """What an error of W_QK is multiplied by: its cost over d·B_QK^∞."""
    cost = described.composition(sample, "derived").matrices[1].log_cost
    return float(np.exp(cost)) / (described.width * norms.score_row_norm)


def recomputed(context: Context, make: Any) -> float:
    """The largest relative distance to the cover made again, for random norms and lengths."""
    from finetti.bounds import Sample
    from finetti.bounds.sparse_variables import HeadCovering

    rng, worst = context.generator(CLAIM.id), 0.0
    for trial in range(HEADS):
        own = 10.0 ** rng.uniform(-1, 1, size=2)
        head = make(
            width=6,
            head_dimension=3,
            query_norm=None if trial % 2 else float(own[0]),
            norm_lipschitz=1.0 + trial % 3,
            **random_norms(rng),
        )
        sample = Sample(1000, 50, input_norm=float(own[1]))
        found = HeadCovering(head, 0.1).evaluate(sample).value
        worst = max(worst, abs(found / composed(head_parts(head, head, sample), 0.1) - 1))
    return worst


def measure(context: Context, make: Any) -> tuple[Any, ...]:
    """What a wrong cost of W_QK would change, for heads made by ``make``."""
    from finetti.bounds import Sample

    head = make(width=3, query_norm=1.0)
    used = score_change(3.0) / counted(head, head, Sample(1, 2, input_norm=3.0))
    return (
        close(f"{HEADS} heads: relative error of log N_∞", recomputed(context, make), 1e-9),
        within("tokens of length 3: change / what W_QK costs", used, 0.98, 1 + ROUNDING),
    )


def run(context: Context) -> Evidence:
    """log N_∞ against the same made again from Lemmas A.10 and 4.3, and its growth with T.

    The formula is checked at its constants, and so is, by an instance at which it is an equality,
    the inequality that gives the cost of W_QK; that so large a cover is needed is not claimed.
    """
    from finetti.bounds import Sample
    from finetti.bounds.sparse_variables import HeadClass, HeadCovering, HeadGap

    head = HeadClass(width=64, readout_norm=1.0)
    samples = [Sample(10**15, length) for length in LENGTHS]
    uneven = {}
    for form in ("printed", "derived"):
        bound = HeadCovering(head, form=form)
        steps = np.diff([bound.evaluate(sample).value for sample in samples])
        uneven[form] = float(np.ptp(steps) / steps.mean())
    complexity = [HeadGap(head).complexity(sample).log_value for sample in samples]
    # log T is k·log 10, so the root of it grows by √k from the first length to the k-th.
    roots = np.log(np.arange(1, len(LENGTHS) + 1)) / 2
    faster = float((np.array(complexity) - complexity[0] - roots).max())
    records = [
        {"T": length, "gap": HeadGap(head).evaluate(sample).value}
        for length, sample in zip(LENGTHS, samples, strict=True)
    ]
    chart = line_chart(
        records,
        x="T",
        y="gap",
        log_x=True,
        x_title="context length",
        y_title="bound on the generalization gap",
        title="One head of width 64, 10¹⁵ samples",
    )
    return Evidence(
        (
            *measure(context, HeadClass),
            close("printed: spread of the steps per decade of T", uneven["printed"], 1e-12),
            close("derived: spread of the steps per decade of T", uneven["derived"], 1e-6),
            at_most("complexity: log of its growth over that of √log T", faster, 0.0),
        ),
        charts=(chart,),
    )


def as_printed(described: Any) -> Any:
    """The class with the printed costs in its derived cover."""

    class Wrong(described):
        def composition(self, sample: Any, form: Any) -> Any:
            return super().composition(sample, "printed")

    return Wrong


def _without_lengths(context: Context) -> Evidence:
    from finetti.bounds.sparse_variables import HeadClass

    return Evidence(measure(context, as_printed(HeadClass)))


CLAIM = Claim(
    id="S-cor-4.4",
    title="the capacity of a head is logarithmic in the context length",
    statement="log N_∞ of heads with bounded norms is affine in log T, so the generalization gap "
    "grows no faster than √log T.",
    paper="S",
    label="Corollary 4.4",
    run=run,
    controls=(Control("c_QK without B_X B_τ, as printed", _without_lengths),),
)
