"""Corollary 4.4: what one head costs, and what its print leaves out."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from finetti.bounds import Sample
from finetti.bounds import sparse_variables as bounds
from finetti.claims.claim import Context, Control, Formula, claim
from finetti.claims.evidence import Evidence, Measurement, at_most, close, trend, within
from finetti.claims.perturbations import RATIO_RTOL
from finetti.claims.sparse_variables import covers
from finetti.claims.sparse_variables.instances import score_change
from finetti.claims.wrong import times
from finetti.core.forms import Form
from finetti.core.norms import max_column_norm, max_row_norm
from finetti.core.numbers import largest_of

_LENGTHS = tuple(10**k for k in range(1, 9))
_HEADS = 50


def random_norms(rng: np.random.Generator) -> dict[str, float]:
    """The norms of one head, over three decades."""
    names = ("value_norm", "value_column_norm", "score_row_norm", "out_lipschitz")
    return dict(zip(names, (10.0 ** rng.uniform(-1.5, 1.5, size=4)).tolist(), strict=True))


def score_cost_used(described: Any, norms: Any) -> Measurement:
    """Tokens of length 3 that attain what W_QK costs: what its error is multiplied by."""
    cost = described.composition(Sample(1, 2, input_norm=3.0), "derived").matrices[1].log_cost
    counted = float(np.exp(cost)) / (described.width * norms.score_row_norm)
    name = "tokens of length 3: change / what W_QK costs"
    return within(name, score_change(3.0) / counted, 0.98, 1 + RATIO_RTOL)


def as_printed(described: Any) -> Any:
    """The class with the printed costs in its derived cover."""

    class Wrong(described):
        def composition(self, sample: Any, form: Any) -> Any:
            return super().composition(sample, "printed")

    return Wrong


@claim(
    id="S-cor-4.4",
    title="the capacity of a head is logarithmic in the context length",
    statement="log N_∞ of heads with bounded norms is affine in log T, so the generalization gap "
    "grows no faster than √log T.",
    formula=r"log N_∞ ≤ 36 \frac{γ^2}{ε^2} Σ_j c_j^{2/3} log(2 ⌈\frac{4 γ c_j^{1/3}}{\sqrt{d_j} "
    "ε} + 2⌉ N_j + 1),  γ = Σ_j c_j^{2/3}",
    controls=(
        Control("c_QK without B_X B_τ, as printed", changes={"make": as_printed(bounds.HeadClass)}),
    ),
)
def s_cor_4_4(context: Context, make: Any = bounds.HeadClass) -> Evidence:
    """log N_∞ against the same made again from Lemmas A.10 and 4.3, and its growth with T.

    The formula is checked at its constants, and so is, by an instance at which it is an equality,
    the inequality that gives the cost of W_QK; that so large a cover is needed is not claimed.
    """
    rng, worst = context.generator(s_cor_4_4.id), 0.0
    for trial in range(_HEADS):
        query, longest = (10.0 ** rng.uniform(-1, 1, size=2)).tolist()
        norms = {"query_norm": None if trial % 2 else query, **random_norms(rng)}
        head = make(width=6, head_dimension=3, norm_lipschitz=1.0 + trial % 3, **norms)
        sample = Sample(1000, 50, input_norm=longest)
        found = bounds.HeadCovering(head, 0.1).evaluate(sample).value
        again = covers.composed(covers.head_parts(head, head, sample), 0.1)
        worst = largest_of(worst, abs(found / again - 1))
    unit = make(width=3, query_norm=1.0)
    head = bounds.HeadClass(width=64, readout_norm=1.0)
    samples = [Sample(10**15, length) for length in _LENGTHS]
    uneven = []
    for form in ("printed", "derived"):
        bound = bounds.HeadCovering(head, form=form)
        steps = np.diff([bound.evaluate(sample).value for sample in samples])
        uneven.append(np.ptp(steps) / steps.mean())
    complexity = [bounds.HeadGap(head).complexity(sample).log_value for sample in samples]
    # log T is k·log 10, so the root of it grows by √k from the first length to the k-th.
    roots = np.log(np.arange(1, len(_LENGTHS) + 1)) / 2
    faster = (np.array(complexity) - complexity[0] - roots).max()
    records = [
        {"T": length, "gap": bounds.HeadGap(head).evaluate(sample).value}
        for length, sample in zip(_LENGTHS, samples, strict=True)
    ]
    axes = {"T": "context length", "gap": "bound on the generalization gap"}
    chart = trend(records, axes, "One head of width 64, 10¹⁵ samples")
    return Evidence(
        close(f"{_HEADS} heads: relative error of log N_∞", worst, 1e-9),
        score_cost_used(unit, unit),
        close("printed: spread of the steps per decade of T", uneven[0], 1e-12),
        close("derived: spread of the steps per decade of T", uneven[1], 1e-6),
        at_most("complexity: log of its growth over that of √log T", faster, 0.0),
        charts=(chart,),
    )


def _with_positions(head: Any, sample: Any) -> float:
    """The bound as the package has it."""
    return bounds.HeadCovering(head, 0.1).evaluate(sample).value


def _query_without(head: Any, sample: Any) -> float:
    """The same where the query has no position."""
    plain = replace(head, positions="none", position_norm=0.0, query_norm=sample.input_norm)
    longer = replace(sample, input_norm=sample.input_norm + head.position_norm)
    return bounds.HeadCovering(plain, 0.1).evaluate(longer).value


@claim(
    id="S-app-A.4",
    title="positions cost as much as longer tokens",
    statement="A head over x_t + p_t with positions of length B_P has the capacity of Corollary "
    "4.4 with B_X + B_P for B_X, also for the query.",
    formula="B_X ↦ B_X + B_P,  B_τ ↦ B_τ + B_P",
    controls=(
        Control("B_P not added", changes={"length": 0.0}),
        Control("a query without position", changes={"value": _query_without}),
    ),
)
def s_app_a_4(
    context: Context, value: Formula = _with_positions, length: float | None = None
) -> Evidence:
    """log N_∞ against the same made again with longer tokens, and tokens that positions lengthen.

    Tokens ±e₁ with positions ±2e₁ move the head as tokens of length 3 do, and so does the query.
    """
    rng, worst = context.generator(s_app_a_4.id), 0.0
    for _ in range(_HEADS):
        longest, position = (10.0 ** rng.uniform(-1, 1, size=2)).tolist()
        norms: Any = random_norms(rng)
        plain = bounds.HeadClass(width=6, head_dimension=3, **norms)
        added = position if length is None else length
        head = replace(plain, positions="fixed", position_norm=added)
        found = value(head, Sample(1000, 50, input_norm=longest))
        sample = Sample(1000, 50, input_norm=longest + position)
        again = covers.composed(covers.head_parts(plain, plain, sample), 0.1)
        worst = largest_of(worst, abs(found / again - 1))
    unit = bounds.HeadClass(width=3, positions="fixed", position_norm=2.0)
    cost = unit.composition(Sample(1, 2, input_norm=1.0), "derived").matrices[1].log_cost
    # The query, too, is three times as long as e₁.
    used = 3 * score_change(3.0) / (math.exp(cost) / 3)
    return Evidence(
        close(f"{_HEADS} heads: relative error of log N_∞", worst, 1e-9),
        within("tokens ±e₁ at ±2e₁: change / what W_QK costs", used, 0.98, 1 + RATIO_RTOL),
    )


@claim(
    id="S-erratum-1",
    title="printed: W_QK's error without the lengths of tokens and query",
    statement="An error of W_QK moves a head by at most B_V B_X times that error (Corollary 4.4), "
    "or twice that (A.12).",
    formula="c_{QK} = C d L_σ B_V B_{QK}^∞ B_X^2 B_τ,  C = 1",
    printed=r"c_{QK} = d L_σ B_V B_{QK}^∞ B_X,  \text{or with a factor} 2",
    label="Corollary 4.4, A.12",
    erratum="Scores grow with the token and with the query: C·B_VB_QK^∞B_X²B_τ with C = 1, where "
    "Corollary 4.4 prints B_VB_QK^∞B_X, its proof one more B_X, and A.12 a factor 2.",
    controls=(Control("C = 2", changes={"constant": 2.0}),),
)
def s_erratum_1(context: Context, constant: float = 1.0) -> Evidence:
    """Tokens ±3e₁, the query e₁, and M from 0 to t·e₁e₁ᵀ: the head's change per unit of t."""
    longest = 3.0
    change = score_change(longest)
    head = bounds.HeadClass(width=3, query_norm=1.0, norm_lipschitz=constant)
    layer = bounds.MultiHeadClass(heads=(head,), width=3, query_norm=1.0)
    sample = Sample(1, 2, input_norm=longest)

    def allowed(described: Any, form: Form) -> float:
        # c_QK is d times the column norm times what an error of W_QK is multiplied by.
        return math.exp(described.log_costs(head, sample, form)[1]) / head.width

    used = change / allowed(head, "derived")
    return Evidence(
        at_most("change, against Corollary 4.4", change, allowed(head, "printed")),
        at_most("change, against A.12", change, allowed(layer, "printed")),
        derived=(within("change / (B_V B_X² B_τ)", used, 0.98, 1 + RATIO_RTOL),),
        note="The proof of Corollary 4.4 has B_QK^∞B_VB_X², which is 9 here too: it lacks B_τ.",
    )


def _largest_outputs(matrices: np.ndarray) -> np.ndarray:
    """The largest coordinate of Wᵀx over unit x: some x lies along the longest column."""
    units = matrices / np.linalg.norm(matrices, axis=1, keepdims=True)
    return np.abs(matrices.swapaxes(1, 2) @ units).max(axis=(1, 2))


@claim(
    id="S-erratum-9",
    title="printed: rows of W_V and columns of W_QK",
    statement="Each output of x ↦ W_Vᵀx is at most ‖W_Vᵀ‖_{2,∞}‖x‖, and each of x ↦ W_QK x at most "
    "‖W_QK‖_{2,∞}‖x‖.",
    formula="|(W_V^⊤ x)_j| ≤ ‖W_V‖_{2,∞} ‖x‖,  |(W_{QK} x)_j| ≤ ‖W_{QK}^⊤‖_{2,∞} ‖x‖",
    printed="|(W_V^⊤ x)_j| ≤ ‖W_V^⊤‖_{2,∞} ‖x‖,  |(W_{QK} x)_j| ≤ ‖W_{QK}‖_{2,∞} ‖x‖",
    label="Corollary 4.4, Theorem A.17",
    erratum="Lemma 4.5 is about Wᵀx and the columns of W: it needs the columns of W_V and the rows "
    "of W_QK.",
    controls=(
        Control(
            "norms 25 % too large",
            breaks={"finetti.claims.sparse_variables.head_capacity.max_column_norm": times(1.25)},
        ),
    ),
)
def s_erratum_9(context: Context) -> Evidence:
    """Each output of W_Vᵀx and of W_QK x for unit x, against the printed and the derived norm."""
    draws = 1000
    rng = context.generator(s_erratum_9.id)
    values, scores = rng.normal(size=(draws, 8, 3)), rng.normal(size=(draws, 8, 8))
    scores *= 10.0 ** rng.uniform(-1, 1, size=(draws, 8, 1))  # rows of different lengths
    outputs = {"W_V": _largest_outputs(values), "W_QK": _largest_outputs(scores.swapaxes(1, 2))}
    printed = {"W_V": max_row_norm(values), "W_QK": max_column_norm(scores)}
    derived = {"W_V": max_column_norm(values), "W_QK": max_row_norm(scores)}
    broken = np.mean(outputs["W_V"] > printed["W_V"])
    return Evidence(
        *(
            at_most(f"{name}: largest output / printed norm", (found / printed[name]).max(), 1.0)
            for name, found in outputs.items()
        ),
        derived=tuple(
            within(f"{name}: largest output / norm", (found / derived[name]).max(), 0.98, 1 + 1e-12)
            for name, found in outputs.items()
        ),
        note=f"{broken:.0%} of {draws} random W_V have outputs beyond the printed norm. The norms "
        "of `HeadClass.from_arrays` are the derived ones.",
    )
