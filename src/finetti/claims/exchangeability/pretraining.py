"""Section 6 with networks that are really pretrained: what they carry over, and at what price."""

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from finetti import risk
from finetti.bounds import exchangeability as bounds
from finetti.claims.claim import Context, Control, claim
from finetti.claims.evidence import Evidence, at_least, at_most, close, within
from finetti.claims.perturbations import holds
from finetti.core.numbers import largest_of
from finetti.latent import Encoded, FiniteAtoms, GaussianEmission

if TYPE_CHECKING:
    from finetti.risk import Pretrained

PRIOR = (0.5, 0.3, 0.2)
# Three atoms, six letters: three values per token are enough, and there are many such triples.
LETTERS = np.array(
    [
        [0.5, 0.1, 0.1, 0.1, 0.1, 0.1],
        [0.05, 0.4, 0.3, 0.1, 0.1, 0.05],
        [0.1, 0.05, 0.05, 0.2, 0.2, 0.4],
    ]
)
LENGTH, VALUES = 3, 3
WORLD = FiniteAtoms(PRIOR, LETTERS)


def _task(table: Any, noise: float = 0.25) -> FiniteAtoms:
    """A downstream task: the same tokens, and a vector around one row per atom."""
    return FiniteAtoms(PRIOR, WORLD.emission, GaussianEmission(table, noise))


@functools.lru_cache(maxsize=8)
def _networks(seed: int, width: int) -> "tuple[Pretrained, Pretrained]":
    """A network as it was drawn, and pretrained; nn(x) has 4 × ``width`` entries."""
    from finetti.core import random_key

    first = risk.AttentionNetwork.init(
        random_key("E-sec-6 networks", seed, width),
        token_dimension=LETTERS.shape[1],
        out_dimension=LETTERS.shape[1],
        hidden_dimension=4 * width,
        head_dimension=width,
        value_dimension=VALUES,
    )
    options = {"iterations": 300, "polish": 0}
    trained = risk.pretrain(first, WORLD, 1000, context_length=LENGTH, seed=seed, **options)
    return replace(trained, network=first), trained


def _measured_excess(pretrained: "Pretrained", rng: np.random.Generator) -> tuple[float, float]:
    """E^PT from fresh sequences: E‖x_L − f̂‖² − E‖x_L − f*‖², and its standard error."""
    from finetti.risk.minimization import predictions

    draw = WORLD.sample(rng, 20_000, LENGTH)
    data = WORLD.encode(draw)
    learned, best = predictions(pretrained.network, data), WORLD.predict(draw.tokens).mean
    more = np.sum((data.target - learned) ** 2 - (data.target - best) ** 2, axis=1)
    return float(more.mean()), float(more.std(ddof=1) / np.sqrt(len(more)))


def _derived_matrix(downstream: np.ndarray, pretrained: np.ndarray) -> np.ndarray:
    """B as the package has it."""
    return bounds.transfer_matrix(downstream, pretrained)


@claim(
    id="E-thm-6.4-trained",
    title="what a trained network carries over",
    statement="A network that was trained to predict the masked token obeys Theorem 6.4, every ε "
    "of it measured over all contexts, with the same mask downstream and with another one.",
    formula="E_{approx} ≤ 3 ε_{agg}^2(B) + 6 μ (E^{PT} + ε_{SSL}^2) + 3 ε_g^2",
    # One deviation of 5 standard errors among two means of 20 000 bounded numbers: 1.2e-6.
    false_alarm=2e-6,
    controls=(
        Control("E^PT of the best of the class", changes={"whole": False}),
        Control(
            "B = W_DSᵀW_SSL", changes={"matrix": lambda downstream, weights: downstream.T @ weights}
        ),
    ),
)
def e_thm_6_4_trained(
    context: Context, whole: bool = True, matrix: Any = _derived_matrix
) -> Evidence:
    """Both sides for a network before and after training, two masks, and features that miss a part.

    E^PT is summed over all contexts, and measured a second time on fresh sequences.
    """
    tasks = _task([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.5]])
    reports, gaps, identity = [], [], 0.0
    before, after = _networks(context.seed, 4)
    smallest = risk.measure_transfer(after, tasks).pretraining_excess
    for index, network in enumerate((before, after)):
        rng = context.generator(e_thm_6_4_trained.id, index)
        for features in (None, LETTERS[:, :2]):
            for mask in (None, [3.0] + 5 * [0.0]):
                report = risk.measure_transfer(network, tasks, mask_token=mask, features=features)
                reports.append(report)
                weights = report.downstream_weights, report.pretraining_weights
                miss = matrix(*weights) @ weights[1].T - weights[0].T
                identity = largest_of(identity, float(np.abs(miss).max()))
        excess, error = _measured_excess(network, rng)
        gaps.append(abs(excess - reports[-1].pretraining_excess) / error)
    ratios = np.array(
        [
            each.aligned_excess / (each.bound if whole else each.bound_with(smallest)).value
            for each in reports
        ]
    )
    same, trained = reports[0], reports[4]
    return Evidence(
        holds(ratios, "pairs of network and task"),
        close("B W_SSL^⊤ − W_DS^⊤", identity, 1e-8),
        at_most(
            "the same mask: ε_agg(B)",
            largest_of(same.aggregation_error, trained.aggregation_error),
            1e-5,
        ),
        at_least("another mask: ε_agg(B)", reports[1].aggregation_error, 1e-3),
        at_least("features that miss a part: ε_SSL", reports[6].transfer_error, 1e-2),
        at_least("E^PT before / after training", same.pretraining_excess / smallest, 10),
        at_most("E^PT on fresh sequences, standard errors away", largest_of(gaps), 5.0),
        note=f"Trained: excess risk {trained.excess:.3g} downstream, bound "
        f"{trained.bound.value:.3g} (μ = {trained.condition_number:.3g}, E^PT = {smallest:.3g}).",
    )


SAMPLES, ROUNDS = 60, 20_000


def _gaps(pretrained: "Pretrained", kept: int, rng: np.random.Generator) -> np.ndarray:
    """E ℓ − Ê ℓ of a least squares aggregation of 60 labels, many times, (rounds,).

    The aggregation uses the first ``kept`` entries of the readout. Expectations are sums over all
    contexts.
    """
    from finetti.risk.minimization import predictions

    table = np.array([[0.5], [-0.5], [0.2]])
    contexts = risk.enumerate_contexts(WORLD, LENGTH)
    tokens = WORLD.emission.encode(contexts.tokens)
    asked = np.zeros((len(tokens), tokens.shape[2]))
    readout = predictions(pretrained.frozen, Encoded(tokens, asked, asked))[:, :kept]
    posteriors, truth = contexts.posteriors, contexts.mean(table)[:, 0]
    # y = g(z) + noise of variance 1: a context leaves Var[g(z) | X] + 1 open.
    spread = contexts.mean(table**2)[:, 0] - truth**2 + 1.0
    where = rng.choice(len(tokens), size=(ROUNDS, SAMPLES), p=contexts.mass)
    chance = rng.random((ROUNDS, SAMPLES, 1))
    atoms = np.sum(chance > np.cumsum(posteriors[where], axis=-1), axis=-1).clip(max=2)
    labels = table[atoms, 0] + rng.normal(size=(ROUNDS, SAMPLES))
    seen = readout[where]  # (rounds, samples, d_v)
    weights = np.einsum("rin,rn->ri", np.linalg.pinv(seen), labels)
    fitted = np.einsum("rni,ri->rn", seen, weights)
    empirical = np.mean((labels - fitted) ** 2, axis=1)
    whole = ((weights @ readout.T - truth) ** 2 + spread) @ contexts.mass
    return whole - empirical


@claim(
    id="E-sec-6-downstream",
    title="downstream, only the aggregation has to be learned",
    statement="After pretraining, the generalization gap of the downstream task follows the size "
    "of the aggregation and not that of the frozen attention.",
    formula=r"E_{gen}^{DS} ≈ \frac{2 σ^2 d}{n}",
    label="Section 6, (6.2)",
    # Six standard errors of two ratios of means over 20 000 rounds, two sides each: 4 · 1e-9.
    false_alarm=1e-8,
    controls=(
        Control("an aggregation that grows with the attention", changes={"kept": (1, VALUES)}),
    ),
)
def e_sec_6_downstream(context: Context, kept: tuple[int, int] = (VALUES, VALUES)) -> Evidence:
    """The gap with attentions of two sizes and one aggregation, and with a third of it.

    60 labels, 20 000 times, the same for all. Least squares with d weights has a gap near 2σ²d/n.
    """
    small, large = (_networks(context.seed, width)[1] for width in (4, 16))
    asked = {"small": (small, kept[0]), "large": (large, kept[1]), "third": (small, 1)}
    gaps = {
        name: _gaps(*each, context.generator(e_sec_6_downstream.id)) for name, each in asked.items()
    }

    def ratio(first: str, second: str) -> tuple[float, tuple[float, float]]:
        """Means of paired rounds, and six standard errors by linearization."""
        top, bottom = gaps[first], gaps[second]
        value = float(top.mean() / bottom.mean())
        miss = (top - value * bottom) / bottom.mean()
        reach = 6 * float(miss.std(ddof=1)) / ROUNDS**0.5
        return value, (value - reach, value + reach)

    size, size_ends = ratio("large", "small")
    less, less_ends = ratio("small", "third")
    few, many = (
        each.query_weights.size + each.key_weights.size + each.value_weights.size
        for each in (small.network, large.network)
    )
    name = f"gap with {many} attention weights / with {few}"
    return Evidence(
        within(name, size, 0.9, 1.1, interval=size_ends),
        within("gap with 3 aggregation weights / with 1", less, 1.8, 5.0, interval=less_ends),
    )
