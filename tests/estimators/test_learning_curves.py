"""A trial of the study of paper R is the obvious computation, and its study plans what it says."""

import jax
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge

from finetti.core.errors import InputError
from finetti.core.numerics.random_keys import generator, random_key
from finetti.estimators import CorrelationPowerTarget, KeyPowerTarget, learn_targets, learning_chart
from finetti.estimators.learning_curves import draw_model
from finetti.estimators.token_regression import random_directions
from finetti.studies import Study
from finetti.studies.spec import shipped_studies

SIZES = {"dimension": 3, "n_keys": 2, "n_heads": 6}
COUNTS = {"train": 30, "validation": 40, "test": 50}
MODELS = {
    "RFA": {"activation": "relu", "mean_weights": None},
    "BRFA": {"activation": "relu", "mean_weights": np.diag([1.0, 1.0, 1.0, 0.0])},
    "SOFT": {"activation": "softmax", "mean_weights": None},
    "EXP": {"activation": "exponential", "mean_weights": None},
}


def trial(model, seed=3):
    return learn_targets(
        seed, model, COUNTS["train"], degrees=(1, 2), n_validation=40, n_test=50, **SIZES
    )


def obvious(model, seed=3):
    """One ridge regression after the other, by scikit-learn."""
    directions = generator("targets", seed)
    targets = [
        make(random_directions(directions, 3), degree)
        for make in (KeyPowerTarget, CorrelationPowerTarget)
        for degree in (1, 2)
    ]
    sets = {name: random_directions(generator(name, seed), n, 3, 3) for name, n in COUNTS.items()}
    module = draw_model(model, random_key("heads", seed, model), 3, 2, 6)
    with jax.enable_x64(False):
        features = {
            name: np.asarray(module.features(np.float32(x[:, 0]), np.float32(x[:, 1:])), float)
            for name, x in sets.items()
        }
    unit = np.mean(np.sum(features["train"] ** 2, axis=1))
    found = []
    for target in targets:
        y = {name: target(x[:, 0], x[:, 1:]) - target.mean for name, x in sets.items()}
        best = (np.inf, 0.0)
        for ridge in unit * np.geomspace(1e-7, 1e2, 19):
            fit = Ridge(ridge, fit_intercept=False, solver="svd").fit(features["train"], y["train"])
            miss = {name: np.mean((fit.predict(features[name]) - y[name]) ** 2) for name in y}
            best = min(best, (miss["validation"], miss["test"] / np.var(y["test"])))
        found.append(best[1])
    return found


@pytest.mark.parametrize("model", ["BRFA", "RFMLP"])
def test_a_trial_is_its_regressions_one_by_one(model):
    found = trial(model)
    names = ["key_power_1", "key_power_2", "correlation_power_1", "correlation_power_2"]
    assert list(found) == names
    np.testing.assert_allclose(list(found.values()), obvious(model), rtol=1e-4)


def test_one_seed_is_one_draw_whatever_the_precision_around():
    with jax.enable_x64(False):
        single = trial("RFA")
    assert trial("RFA") == single
    assert trial("RFA", seed=4) != single


def test_the_models_are_what_their_names_say():
    for name, wanted in MODELS.items():
        module = draw_model(name, random_key(0), 3, 2, 6)
        assert module.activation == wanted["activation"]
        if wanted["mean_weights"] is None:
            assert module.mean_weights is None
        else:
            np.testing.assert_array_equal(module.mean_weights, wanted["mean_weights"])
        assert module.draws.dtype == np.float32
    network = draw_model("RFMLP", random_key(0), 3, 2, 6)
    assert network.values.size == module.values.size == 6 * 4


def test_the_study_is_the_experiment_and_all_its_scales_are_sound(tmp_path):
    (file,) = [path for name, path in shipped_studies().items() if name == "random_feature_targets"]
    assert file.is_file()
    store = tmp_path / "x.sqlite"
    study = Study.from_toml("random_feature_targets", store=store)
    assert [cell.params["n_samples"] for cell in study.plan.cells[::5]] == [
        2**k for k in range(4, 13)
    ]
    assert study.plan.trials == 5
    assert {study.plan.cells[0].params[name] for name in ("dimension", "n_keys")} == {16}
    sizes = {"table": 25, "quick": 9, "heads": 20, "keys": 30, "dimension": 20, "tiny": 4}
    assert set(study.spec.scales) == set(sizes)
    for scale, cells in sizes.items():
        plan = Study.from_toml("random_feature_targets", scale=scale, store=store).plan
        assert len(plan.cells) == cells
    with pytest.raises(InputError, match=r"study 'random_features'\. .* random_feature_targets"):
        Study.from_toml("random_features")


def test_the_chart_shows_means_and_standard_errors():
    trials = pd.DataFrame({"model": ["RFA"] * 4, "n_keys": [2, 2, 4, 4], "f": [0.9, 1.1, 0.4, 0.6]})
    chart = learning_chart(trials, "f", against="n_keys")
    rows = chart["layer"][0]["data"]["values"]
    first = next(row for row in rows if row["n_keys"] == 2)
    assert (first["error"], first["low"], first["high"]) == pytest.approx((1.0, 0.9, 1.1))
    with pytest.raises(InputError, match="`against`"):
        learning_chart(trials, "f", against="seed")
    with pytest.raises(InputError, match="with a column g"):
        learning_chart(trials, "g", against="n_keys")


# d = N = 16, M = 1000 heads (17 000 neurons), n = 256: means of 3 seeds, measured once, and the
# largest standard deviation over seeds at any n.
MEASURED = {
    "RFA": "0.013 0.75 0.42 0.86 0.55 0.72 0.65 0.95",
    "RFMLP": "0.32 1 0.69 1 0.84 0.9 0.89 0.98",
}
DEVIATIONS = {
    "RFA": "0.04 0.06 0.05 0.06 0.07 0.05 0.07 0.03",
    "RFMLP": "0.05 0.007 0.05 0.02 0.04 0.03 0.03 0.03",
}


@pytest.mark.slow
@pytest.mark.parametrize("model", MEASURED)
def test_errors_are_those_of_an_earlier_measurement(model):
    """|mean of 2 seeds − mean of 3| ≤ 4·sd·√(1/2 + 1/3) for all eight targets."""
    trials = [
        learn_targets(seed, model, 256, n_heads=1000, n_validation=400, n_test=800)
        for seed in (1, 2)
    ]
    names = [f"{kind}_power_{p}" for kind in ("key", "correlation") for p in (1, 2, 3, 4)]
    found = np.mean([[trial[name] for name in names] for trial in trials], axis=0)
    expected, sd = (np.array(rows[model].split(), float) for rows in (MEASURED, DEVIATIONS))
    assert (np.abs(found - expected) <= 4 * sd * (1 / 2 + 1 / 3) ** 0.5).all()
