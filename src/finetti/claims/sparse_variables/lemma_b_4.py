"""Lemma B.4: one head over a bag of vectors."""

import math
from dataclasses import replace

from finetti.claims.claim import Claim, Context, Control, Evidence, Measurement, close
from finetti.claims.sparse_variables.boolean_cases import head_error
from finetti.claims.sparse_variables.lemma_b_2 import embedding_evidence

LENGTH = 50


def measure(eight: float = 8.0) -> Measurement:
    """The error of a head with R = log(``eight``·Ts/γ) at an orthonormal basis, written down.

    It is worst if no relevant bit is 1: [CLS], whose value is −s, has the score R, and T tokens
    whose value is 0 have the score 0. With γ = 1/s and e^R = 8Ts/γ = 8Ts² the head is then off by
    sT/(e^R + T) = s/(8s² + 1), nearly half of the γ/4 = 1/(4s) that the lemma allows.
    """
    from finetti.boolean import And, compile

    worst = 0.0
    for s in (1, 2, 3, 5):
        weights = compile(And(range(s)), LENGTH, "bag").head
        scale = math.log(eight * LENGTH * s**2) / math.log(8 * LENGTH * s**2)
        head = replace(weights, query=weights.query * scale)
        found = head_error(head, tuple(range(s)), scalar=True)
        worst = max(worst, abs(found / (s / (8 * s**2 + 1)) - 1))
    return close("error where it can be written down, relative", worst, 1e-9)


def run(context: Context) -> Evidence:
    """The head's error against γ/4, every norm against its bound, and the error by hand.

    The lemma allows twice the error of the last, so that only this can tell R from a smaller one.
    """
    found = embedding_evidence(context, CLAIM.id, "bag")
    return replace(found, measurements=(*found.measurements, measure()))


def _smaller(context: Context) -> Evidence:
    return Evidence((measure(4.0),))


CLAIM = Claim(
    id="S-lemma-B.4",
    title="a bag of vectors: one head reads the count or the bits",
    statement="Over X = diag(b)V one head with keys u + v_[CLS] and dual vectors on the value side "
    "is within γ/4, γ = 1/s, of (r − s)/(r + 1), or of the vector of (b_i − 1)/(r + 1), with no "
    "condition between γ and Δ; ‖W_V‖ ≤ 2s, ‖W_C‖ ≤ s.",
    paper="S",
    label="Lemma B.4",
    run=run,
    controls=(Control("R = log(4Ts/γ)", _smaller),),
)
