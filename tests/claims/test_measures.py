"""The measures that claims share: right, wrong, and not a number."""

import math
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest

from finetti.claims import Context, load_ledger, run_claim
from finetti.claims.measures import Agreement, MonteCarlo, PowerLaw, Ratio
from finetti.claims.ours import predictive_futures
from finetti.claims.random_features import feature_learning
from sample_claims import claim


@dataclass
class Lemma:
    ratio: object


def lemma(x, form="derived"):
    return Lemma(x * {"derived": 1.0, "printed": 3.0}[form])


def exponentials(x, form="derived"):
    return {"exp": (np.exp(x), (np.exp if form == "derived" else np.sin)(x))}


def distance(context, size, power=-0.5):
    return context.draws(size).normal(1.0, 0.01, size=20) * size**power


def sample(context, mean):
    return {"mean": context.draws("sample").normal(mean, size=(10_000, 3))}


RATIO = Ratio(lemma, lambda rng: (rng.uniform(size=100),), {"one": lambda: (0.99,)})
AGREEMENT = Agreement(exponentials, lambda rng: (rng.normal(size=3),), 1e-12)
POWER = PowerLaw(distance, (10, 100, 1000), (-0.55, -0.45))
BOUNDED = PowerLaw(
    lambda context, size, curve: distance(context, size),
    POWER.sizes,
    POWER.slope,
    curves=("a", "bc"),
    bound=lambda context, size: 1.1 * size**-0.5,
    share=(0.5, 1.0),
)
MONTE_CARLO = MonteCarlo(sample, lambda mean: {"mean": mean}, lambda rng: np.ones(3))
WRONG = [
    (RATIO, {"lemma": lambda x: lemma(x * 1.021)}),
    (RATIO, {"lemma": lambda x: lemma(x / 1.021)}),
    (RATIO, {"tight": {"one": lambda: (0.5,)}}),
    (RATIO, {"draw": lambda rng: (np.array([0.5, 1.1]),)}),
    (AGREEMENT, {"routes": lambda x: {"exp": (np.exp(x) * (1 + 1e-11), np.exp(x))}}),
    (POWER, {"error": partial(distance, power=-1.0)}),
    (MONTE_CARLO, {"factor": 1.1}),
    (BOUNDED, {"bound": lambda context, size: 0.9 * size**-0.5}),
    (BOUNDED, {"error": lambda context, size, curve: distance(context, size, -len(curve) / 2)}),
]


def not_a_number(x):
    return {"exp": (np.full(3, np.nan), np.exp(x))}


@pytest.mark.parametrize(("measure", "changes"), WRONG)
def test_a_measure_holds_for_the_right_claim_and_fails_for_the_wrong_one(measure, changes):
    right = claim(run=measure)
    assert run_claim(right, Context()).as_expected, run_claim(right, Context()).error
    assert right.measured.endswith(".")
    wrong = run_claim(claim(run=replace(measure, **changes)), Context())
    assert wrong.verdict == "fails", wrong.error


@pytest.mark.parametrize(
    ("measure", "changes"),
    [
        (RATIO, {"draw": lambda rng: (np.array([0.5, np.nan, 0.1]),)}),
        (AGREEMENT, {"routes": not_a_number}),
        (MONTE_CARLO, {"factor": math.nan}),
    ],
)
def test_what_is_not_a_number_decides_nothing(measure, changes):
    found = run_claim(claim(run=replace(measure, **changes)), Context())
    assert found.error is None, found.error
    assert found.verdict == "inconclusive"


def test_a_printed_form_is_measured_where_it_breaks():
    two = replace(RATIO, tight={"one": lambda: (0.99,), "none": lambda: (0.0,)})
    two = replace(two, limits={"none": (0.0, 0.0)}, fails_at=("one",))
    (found,) = two(Context(), "printed").measurements
    assert found.holds is False
    assert found.value == pytest.approx(2.97)
    assert "1.021" in two.rejects
    for form, verdict in (("derived", "holds"), ("printed", "fails")):
        assert AGREEMENT(Context(), form).verdict == verdict


def test_arrays_by_name_are_compared_by_name():
    def both(x):
        return {"sine": (np.sin(x), np.sin(x)), "zero": (0 * x, np.full(3, 1e-3))}

    found = replace(AGREEMENT, routes=both, absolute=True)(Context())
    assert [(each.name, each.holds) for each in found.measurements] == [
        ("sine", True),
        ("zero", False),
    ]


def test_the_scores_of_predictive_draws_are_those_of_normal_numbers():
    """The mean square of |z| is 1; of the largest of all moments it is larger, and at most 9."""
    rng, repeats = np.random.default_rng(0), 400
    truth = rng.normal(size=(repeats, 100))
    draws = rng.normal(size=(repeats, 100, predictive_futures.PATHS))
    found = [predictive_futures._covered(*each, rng) for each in zip(draws, truth, strict=True)]
    assert abs(np.mean(np.square(found)) - 1) < 5 * np.sqrt(2 / repeats)
    factor = np.array([[2.0, 0.0], [-1.0, 0.5]])
    mean = np.array([3.0, -4.0])
    z = [
        predictive_futures.largest_z(
            mean + rng.normal(size=(1000, 2)) @ factor.T, mean, factor @ factor.T
        )
        for _ in range(repeats)
    ]
    assert max(z) < 6
    assert 1 < np.mean(np.square(z)) < 5  # the largest of five squares of normal numbers


@pytest.mark.parametrize("largest", [0.015, 0.021])
def test_an_error_of_attention_that_grows_with_the_keys_is_seen(monkeypatch, largest):
    """All else is as the claim says: only the ratio of the errors decides."""
    errors = {"RFA": {1: 0.01, 4: 0.012, 16: largest}, "RFMLP": {1: 0.02, 4: 0.5, 16: 1.0}}

    def learn(context, model, repeats, n_keys, **sizes):
        return {"key_power_2": np.full(repeats, errors[model][n_keys])}

    monkeypatch.setattr(feature_learning, "learn", learn)
    found = run_claim(load_ledger()["R-learn-keys"], Context())
    assert found.verdict == ("holds" if largest < 0.02 else "fails"), found.error


ALONE = """
from types import SimpleNamespace
import numpy as np
from finetti.claims.measures import ratios

def lemma(x):
    from finetti.attention.networks.activations import ACTIVATIONS
    return SimpleNamespace(ratio=ACTIVATIONS["relu"](x))

assert ratios(lemma, np.array([-1.0, 2.0])).tolist() == [0.0, 2.0]
"""


def test_a_lemma_may_import_networks_when_it_is_the_first_to_run():
    """Activations look at their function on import, which `jax.vmap` of a ReLU does not allow."""
    done = subprocess.run(
        [sys.executable, "-c", ALONE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
