"""Lemma 3.2: the latent posterior is a minimal sufficient statistic."""

import itertools
from typing import Any, Literal

import numpy as np

from finetti import latent
from finetti.claims.claim import Context, Control, claim
from finetti.claims.evidence import Evidence, at_least, at_most, close
from finetti.core.numbers import largest_of, smallest_of

ATOMS, LENGTH = 3, 4
Statistic = Literal["posterior", "counts", "without the last token"]


def two_alike(rng: np.random.Generator) -> np.ndarray:
    """p(x | z) of 3 letters, the first two in one ratio for every z: they say the same of z."""
    # The last letter has probability 0.2, 0.5, 0.8, moved a little.
    last = np.array([0.2, 0.5, 0.8]) + rng.uniform(-0.05, 0.05, size=ATOMS)
    ratio = rng.uniform(0.3, 0.7)
    return np.stack([ratio * (1 - last), (1 - ratio) * (1 - last), last], axis=1)


def groups(world: Any, tokens: np.ndarray, statistic: Statistic) -> np.ndarray:
    """Which sequences have the same value of the statistic, as labels."""
    shown = tokens[:, :-1] if statistic == "without the last token" else tokens
    if statistic == "counts":
        values = np.stack([(tokens == letter).sum(axis=1) for letter in range(3)], axis=1)
    else:
        values = world.posterior(shown).probabilities.round(10)
    return np.unique(values, axis=0, return_inverse=True)[1].ravel()


def given_statistic(likelihood: np.ndarray, labels: np.ndarray) -> float:
    """How much p(X | statistic, z) depends on z: 0 for a sufficient statistic."""
    mass = np.stack([likelihood[labels == each].sum(axis=0) for each in range(labels.max() + 1)])
    share = likelihood / mass[labels]
    return float(np.ptp(share, axis=1).max())


def least_merged(likelihood: np.ndarray, labels: np.ndarray) -> float:
    """The same after merging two values of the statistic, for the two that matter least."""
    mass = np.stack([likelihood[labels == each].sum(axis=0) for each in range(labels.max() + 1)])
    pairs = itertools.combinations(mass, 2)
    return smallest_of(np.ptp(first / (first + second)) for first, second in pairs)


def answers_table(rng: np.random.Generator, n_answers: int) -> np.ndarray:
    """p(y | z), each z leaning to an answer of its own: the rows are far from dependent."""
    leaning = np.eye(ATOMS, n_answers)
    return (leaning + rng.dirichlet(np.ones(n_answers), size=ATOMS)) / 2


@claim(
    id="E-lemma-3.2",
    title="the latent posterior is a minimal sufficient statistic",
    statement="(a) b_z(X) = p(z|X) is a minimal sufficient statistic of X for z. (b) Where "
    "(Tf)(y) = ∫p(y|z)f(z)dz is injective, p(z|X) is also a function of p(y|X), and so b_z(X) is "
    "one for y; where T is singular, it is not.",
    formula="b_z(X) = p(z|X),  p(y|X) = ∫ p(y|z) p(z|X) dz",
    controls=(
        Control("a statistic that is not minimal", changes={"statistic": "counts"}),
        Control("one that is not sufficient", changes={"statistic": "without the last token"}),
        Control("two latent values that answer alike", changes={"alike": True}),
    ),
)
def e_lemma_3_2(
    context: Context, statistic: Statistic = "posterior", alike: bool = False
) -> Evidence:
    """All sequences of 4 letters: what is left of z given b_z(X), and when two values are merged.

    Then p(z|X) from p(y|X) by least squares, and two posteriors with the same answers.
    """
    spread = recovered = indirect = 0.0
    least, tokens = np.inf, np.array(list(itertools.product(range(3), repeat=LENGTH)))
    for trial in range(context.pick(quick=20, paper=200)):
        rng = context.generator(e_lemma_3_2.id, trial)
        answers = answers_table(rng, n_answers=ATOMS + trial % 3)
        if alike:
            answers[2] = answers[1]
        prior = rng.dirichlet(np.full(ATOMS, 5.0))
        world = latent.FiniteAtoms(prior, two_alike(rng), answers)
        likelihood = np.prod(world.emission.table.T[tokens], axis=1)  # (X, z), from the table
        labels = groups(world, tokens, statistic)
        spread = largest_of(spread, given_statistic(likelihood, labels))
        least = smallest_of(least, least_merged(likelihood, labels))
        joint = prior * likelihood
        exact = joint / joint.sum(axis=1, keepdims=True)
        law = joint @ answers / joint.sum(axis=1, keepdims=True)
        direct = world.integrate(latent.Categorical(exact)).probabilities
        indirect = largest_of(indirect, np.abs(direct - law).max())
        found = np.linalg.lstsq(answers.T, law.T, rcond=None)[0].T
        if not alike:
            found = latent.recover_posterior(law, answers).probabilities
        recovered = largest_of(recovered, np.abs(found - exact).max())
    singular = answers_table(context.generator(e_lemma_3_2.id, "singular"), ATOMS)
    singular[2] = (singular[0] + singular[1]) / 2
    twins: Any = latent.twin_posteriors(singular)
    same = np.abs((twins[0] - twins[1]) @ singular).max()
    return Evidence(
        at_most("(a) how much X given b_z(X) depends on z", spread, 1e-9),
        at_least("(a) the same when two values of b_z are merged, at least", least, 0.01),
        close("(b) p(y|X) from b_z(X) − from the joint law of z, X, y", indirect, 1e-12),
        close("(b) T injective: p(z|X) from p(y|X)", recovered, 1e-12),
        close("(b) T singular: difference of two p(y|X)", same, 1e-12),
        at_least(
            "(b) the same: difference of their p(z|X)", np.abs(twins[0] - twins[1]).max(), 0.1
        ),
        note="3 latent values, 3 letters of which two say the same, 3 to 5 answers.",
    )


@claim(
    id="E-erratum-11",
    title="printed: Lemma 3.2(b) for an invertible operator",
    statement="p(z|X) is a function of p(y|X) where (Tf)(y) = ∫p(y|z)f(z)dz is invertible, and not "
    "elsewhere.",
    formula="ker T = 0 ⇒ p(z|X) = T^{+} p(y|X)",
    printed=r"T^{-1} \text{exists} ⇔ p(z|X) \text{is a function of} p(y|X)",
    label="Lemma 3.2(b)",
    erratum="The proof applies T⁻¹ to p(y|X), which lies in the range of T: a left inverse will "
    "do. T need only be injective, as with more answers than latent values.",
    controls=(Control("as many answers as latent values", changes={"n_answers": ATOMS}),),
)
def e_erratum_11(context: Context, n_answers: int = 5) -> Evidence:
    """A world with 3 latent values and 5 answers: T is 5 × 3, injective and not invertible."""
    rng = context.generator(e_erratum_11.id)
    answers, n_letters = answers_table(rng, n_answers), 4
    prior = rng.dirichlet(np.full(ATOMS, 5.0))
    world = latent.FiniteAtoms(prior, rng.dirichlet(np.ones(n_letters), size=ATOMS), answers)
    tokens = rng.integers(n_letters, size=(100, 6))
    # p(z|X) and p(y|X), both from the joint distribution of z, X and y
    joint = prior * np.prod(world.emission.table.T[tokens], axis=1)
    exact, law = (each / joint.sum(axis=1, keepdims=True) for each in (joint, joint @ answers))
    worst = np.abs(latent.recover_posterior(law, answers).probabilities - exact).max()
    # An invertible T would reach every function of y, as the indicator of the last answer.
    last = np.eye(answers.shape[1])[-1]
    missed = np.linalg.norm(answers.T @ (np.linalg.pinv(answers.T) @ last) - last)
    # Two latent values that answer alike: T is not injective, and p(y|X) leaves p(z|X) open.
    alike = answers[[0, 1, 1]]
    twins: Any = latent.twin_posteriors(alike)
    same = np.abs((twins[0] - twins[1]) @ alike).max()
    return Evidence(
        at_most("T is invertible: distance of a function of y to its range", missed, 1e-10),
        derived=(
            close("p(z|X) from p(y|X), 100 sequences", worst, 1e-12),
            close("T not injective: difference of two p(y|X)", same, 1e-12),
            at_least(
                "the same: difference of their p(z|X)", np.abs(twins[0] - twins[1]).max(), 0.1
            ),
        ),
    )
