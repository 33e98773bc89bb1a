"""Erratum 11: Lemma 3.2(b) needs an operator that loses nothing, not one that is invertible."""

import numpy as np

from finetti.claims.claim import Context, claim
from finetti.claims.evidence import Evidence, at_least, at_most, close


@claim(
    id="E-erratum-11",
    title="printed: Lemma 3.2(b) for an invertible operator",
    statement="p(z|X) is a function of p(y|X) where (Tf)(y) = ∫p(y|z)f(z)dz is invertible, and not "
    "elsewhere.",
    label="Lemma 3.2(b)",
    erratum="The proof applies T⁻¹ to p(y|X), which lies in the range of T: a left inverse will "
    "do. T need only be injective, as with more answers than latent values.",
)
def e_erratum_11(context: Context) -> Evidence:
    """A world with 3 latent values and 5 answers: T is 5 × 3, injective and not invertible."""
    atoms, outcomes, letters, length = 3, 5, 4, 6
    rng = context.generator(e_erratum_11.id)
    # Each latent value leans to an answer of its own, so the columns of T are far from dependent.
    answers = (np.eye(outcomes, atoms) + rng.dirichlet(np.ones(outcomes), size=atoms).T) / 2
    prior = rng.dirichlet(np.full(atoms, 5.0))
    emission = rng.dirichlet(np.ones(letters), size=atoms)
    inverse, worst = np.linalg.pinv(answers), 0.0
    for _ in range(100):
        tokens = rng.integers(letters, size=length)
        # p(z|X) and p(y|X), both from the joint distribution of z, X and y
        likelihood = prior * np.prod(emission[:, tokens], axis=1)
        joint = answers * likelihood  # (y, z) for this X
        latent, answer = likelihood / likelihood.sum(), joint.sum(axis=1) / joint.sum()
        worst = max(worst, np.abs(inverse @ answer - latent).max())
    # An invertible T would reach every function of y, as the indicator of the last answer.
    last = np.eye(outcomes)[-1]
    missed = np.linalg.norm(answers @ (inverse @ last) - last)
    # Two latent values that answer alike: T is not injective, and p(y|X) leaves p(z|X) open.
    alike = answers[:, [0, 1, 1]]
    posteriors = np.array([[0.2, 0.7, 0.1], [0.2, 0.1, 0.7]])
    same = np.abs(alike @ (posteriors[0] - posteriors[1])).max()
    blind = np.abs(np.linalg.pinv(alike) @ alike @ posteriors[0] - posteriors[0]).max()
    return Evidence(
        at_most("T is invertible: distance of a function of y to its range", missed, 1e-10),
        derived=(
            close("p(z|X) from p(y|X), 100 sequences", worst, 1e-12),
            close("T not injective: difference of two p(y|X)", same, 1e-12),
            at_least("the same: what is missed of p(z|X)", blind, 0.1),
        ),
    )
