"""Erratum 9: which way the matrices lie."""

import numpy as np

from finetti.claims.claim import Claim, Context, Evidence, Verdict, at_most, within
from finetti.core.norms import max_column_norm, max_row_norm

DRAWS = 1000


def largest_outputs(matrices: np.ndarray) -> np.ndarray:
    """The largest coordinate of Wᵀx over unit x: some x lies along the longest column."""
    units = matrices / np.linalg.norm(matrices, axis=1, keepdims=True)
    return np.abs(matrices.swapaxes(1, 2) @ units).max(axis=(1, 2))


def run(context: Context) -> Evidence:
    """Each output of W_Vᵀx and of W_QK x for unit x, against the printed and the derived norm."""
    rng = context.generator(CLAIM.id)
    values, scores = rng.normal(size=(DRAWS, 8, 3)), rng.normal(size=(DRAWS, 8, 8))
    scores *= 10.0 ** rng.uniform(-1, 1, size=(DRAWS, 8, 1))  # rows of different lengths
    outputs = {
        "W_V": largest_outputs(values),
        "W_QK": largest_outputs(scores.swapaxes(1, 2)),
    }
    printed = {"W_V": max_row_norm(values), "W_QK": max_column_norm(scores)}
    derived = {"W_V": max_column_norm(values), "W_QK": max_row_norm(scores)}
    broken = np.mean(outputs["W_V"] > printed["W_V"])
    return Evidence(
        tuple(
            at_most(f"{name}: largest output / printed norm", (found / printed[name]).max(), 1.0)
            for name, found in outputs.items()
        ),
        derived=tuple(
            within(f"{name}: largest output / norm", (found / derived[name]).max(), 0.98, 1 + 1e-12)
            for name, found in outputs.items()
        ),
        note=f"{broken:.0%} of {DRAWS} random W_V have outputs beyond the printed norm. The norms "
        "of `HeadClass.from_weights` are the derived ones.",
    )


CLAIM = Claim(
    id="S-erratum-9",
    title="printed: rows of W_V and columns of W_QK",
    statement="Each output of x ↦ W_Vᵀx is at most ‖W_Vᵀ‖_{2,∞}‖x‖, and each of x ↦ W_QK x at most "
    "‖W_QK‖_{2,∞}‖x‖.",
    paper="S",
    label="Corollary 4.4, Theorem A.17",
    run=run,
    expected=Verdict.FAILS,
    erratum="Lemma 4.5 is about Wᵀx and the columns of W: it needs the columns of W_V and the rows "
    "of W_QK.",
)
