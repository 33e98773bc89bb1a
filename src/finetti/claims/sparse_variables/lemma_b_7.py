"""Lemma B.7: softmax with a lead is nearly uniform over the leaders."""

import numpy as np

from finetti.claims.claim import Claim, Context, Evidence, at_least, at_most


def run(context: Context) -> Evidence:
    """The ℓ1 distance to the uniform mixture over its bound, for random and for tight scores."""
    from finetti.boolean.embeddings.base import attention_error

    rng = context.generator(CLAIM.id)
    largest = tightest = 0.0
    for _ in range(context.pick(quick=2000, paper=20000)):
        length = int(rng.integers(2, 200))
        sparsity = int(rng.integers(1, length + 1))
        lead = rng.uniform(0, 12)
        scores = np.full(length, lead)
        scores[sparsity:] = -rng.exponential(rng.choice([0.0, 1.0, 5.0]), length - sparsity)
        weights = np.exp(scores - lead)
        weights /= weights.sum()
        wanted = np.where(np.arange(length) < sparsity, 1 / sparsity, 0.0)
        bound = attention_error(length, sparsity, lead)
        if bound > 0:
            ratio = float(np.abs(weights - wanted).sum()) / bound
            largest = max(largest, ratio)
            if bound < 1e-3:
                tightest = max(tightest, ratio)
    return Evidence(
        (
            at_most("largest ℓ1 error over 2(T − s)/(s e^R)", largest, 1 + 1e-9),
            at_least("the same where the bound is small: it is sharp", tightest, 0.99),
        )
    )


CLAIM = Claim(
    id="S-lemma-B.7",
    title="softmax truncation",
    statement="If s of T scores are equal to R and the others at most 0, softmax is within "
    "2(T − s)/(s e^R) of the uniform distribution on the s, in ℓ1.",
    paper="S",
    label="Lemma B.7",
    run=run,
)
