"""Erratum 8: whole budgets that add up to n do not cover the columns."""

import numpy as np

from finetti.claims.claim import Claim, Context, Evidence, Verdict, at_least
from finetti.claims.sparse_variables.lemma_4_5 import COLUMNS, MATRICES, budget_ratios


def run(context: Context) -> Evidence:
    """Random W with ‖W‖_{2,1} = B₁: whether budgets rounded down reach, rounded up still fit."""
    budget = 4 * COLUMNS
    _, down, _ = budget_ratios(context.generator(CLAIM.id), budget, extra=0)
    filled, _, _ = budget_ratios(context.generator(CLAIM.id), budget, extra=1)
    reached = float(np.mean(down <= 1))
    fit = float(np.mean(filled * (budget + COLUMNS) <= budget))
    return Evidence(
        (
            at_least(f"rounded up: part of {MATRICES} matrices with Σ k_i ≤ n", fit, 1.0),
            at_least("rounded down: part with all columns inside their balls", reached, 1.0),
        ),
        note="With n + d₂ units instead of n every W is covered: S-lemma-4.5.",
    )


CLAIM = Claim(
    id="S-erratum-8",
    title="printed: n units of budget suffice for the columns",
    statement="The columns of any W with ‖W‖_{2,1} ≤ B₁ lie in balls of radii B₁k_i/n for whole "
    "budgets k_i with Σ k_i ≤ n.",
    paper="S",
    label="Lemma 4.5, proof",
    run=run,
    expected=Verdict.FAILS,
    erratum="The budgets n‖v_i‖/B₁ are not whole: rounded down the balls are too small, rounded up "
    "the tuple leaves the set that the proof counts. It takes n + d₂ units, which costs the "
    "factor (1 + d₂/n)².",
)
