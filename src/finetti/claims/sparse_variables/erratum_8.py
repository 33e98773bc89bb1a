"""Erratum 8: budgets for the columns by B_∞, where the proof of Lemma 4.5 needs B₁."""

import numpy as np

from finetti.claims.claim import Claim, Context, Evidence, Measurement, Verdict, at_least, at_most
from finetti.claims.sparse_variables.lemma_4_5 import MATRICES

COLUMNS = 32


def budgets(lengths: np.ndarray, bound: np.ndarray) -> tuple[Measurement, Measurement]:
    """Whether k_i = ⌊d₂‖v_i‖/B⌋ has Σ k_i ≤ d₂, and how far apart W and its cover are.

    Column i is covered at ε√((k_i + 1)/2d₂), so that all of them are √((d₂ + Σ k_i)/2d₂)·ε apart.
    """
    total = np.floor(COLUMNS * lengths / bound[:, None]).sum(axis=1)
    radius = np.sqrt((COLUMNS + total) / (2 * COLUMNS))
    return (
        at_least(f"part of {MATRICES} matrices in S", np.mean(total <= COLUMNS), 1.0),
        at_most("largest radius / ε", radius.max(), 1.0),
    )


def run(context: Context) -> Evidence:
    """Random W with 32 columns: whether its tuple is in S = {Σ k_i ≤ d₂}, and the cover's radius.

    The printed proof rounds by B_∞, the length of the longest column; derived: by their sum B₁.
    """
    rng = context.generator(CLAIM.id)
    lengths = np.linalg.norm(rng.normal(size=(MATRICES, 16, COLUMNS)), axis=1)
    return Evidence(
        budgets(lengths, lengths.max(axis=1)),
        derived=budgets(lengths, lengths.sum(axis=1)),
        note="S-lemma-4.5 has the proof with B₁ and n units for the columns in the place of d₂.",
    )


CLAIM = Claim(
    id="S-erratum-8",
    title="printed: the columns share a budget by B_∞",
    statement="For every W with columns of length ≤ B_∞ the tuple k_i = ⌊d₂‖v_i‖/B_∞⌋ lies in "
    "S = {Σ k_i ≤ d₂}, so that columns covered at ε√((k_i + 1)/2d₂) are within ε together.",
    paper="S",
    label="Lemma 4.5, proof",
    run=run,
    expected=Verdict.FAILS,
    erratum="By B_∞ every long column takes nearly the whole budget. It must be shared by B₁, the "
    "sum of the lengths, which bounds ‖W‖_{2,1} and not ‖W‖_{2,∞}: S-lemma-4.5-refined.",
)
