"""What random-feature models learn of the targets of paper R: a kind of trial, and its figure."""

from collections.abc import Iterator
from typing import Any, Literal, get_args

import jax
import numpy as np
from pydantic import PositiveInt

from finetti.attention.random_features.random_feature_attention import RandomFeatureAttention
from finetti.attention.random_features.random_feature_mlp import RandomFeatureMLP
from finetti.core.errors import bad_argument
from finetti.core.numerics.random_keys import generator, random_key
from finetti.display.charts.line_charts import Chart, line_chart
from finetti.estimators.ridge_system import Floats, decompose_gram, ridge_grid
from finetti.estimators.sets.token_data import FAMILIES, TokenTarget, random_directions

Model = Literal["RFA", "BRFA", "RFMLP", "SOFT", "EXP"]
Family = Literal["key_power", "correlation_power"]
CHUNK_ROWS = 512  # whose features are in memory at once, beside those of the training set


def draw_model(model: Model, key: Any, dimension: int, n_keys: int, n_heads: int) -> Any:
    """M heads, or as many neurons as give the same number of parameters, M(d + 1).

    In single precision, whatever JAX is set to: so one seed means one draw.
    """
    options: Any = {
        "RFA": {},
        "BRFA": {"mean_weights": "identity"},
        "SOFT": {"activation": "softmax"},
        "EXP": {"activation": "exponential"},
    }.get(model)
    with jax.enable_x64(False):
        if options is None:
            return RandomFeatureMLP(key, n_heads * (dimension + 1), dimension, n_keys)
        return RandomFeatureAttention(key, n_heads, dimension, **options)


def learn_targets(
    seed: int,
    model: Model,
    n_samples: PositiveInt,
    dimension: PositiveInt = 16,
    n_keys: PositiveInt = 16,
    n_heads: PositiveInt = 1000,
    families: tuple[Family, ...] = get_args(Family),
    degrees: tuple[PositiveInt, ...] = (1, 2, 3, 4),
    n_validation: PositiveInt = 2000,
    n_test: PositiveInt = 2000,
) -> dict[str, float]:
    """Test error, MSE/variance, of a ridge regression on random features, for every target

    The ridge is the best of 19, 10⁻⁷ to 10² times the mean eigenvalue, on a validation set. Targets
    have mean 0 and no noise. One draw of features and one decomposition serve all targets and all
    ridges. Trials with one seed have the same inputs, targets and (of one model) heads: the rows of
    a small training set are the first ones of a large one.
    """
    directions = generator("targets", seed)
    targets = {
        f"{family}_{degree}": FAMILIES[family](random_directions(directions, dimension), degree)
        for family in families
        for degree in degrees
    }
    module = draw_model(model, random_key("heads", seed, model), dimension, n_keys, n_heads)
    train, validation, test = (
        random_directions(generator(name, seed), count, n_keys + 1, dimension)
        for name, count in (("train", n_samples), ("validation", n_validation), ("test", n_test))
    )
    features = np.concatenate(list(_features(module, train)))
    gram = features @ features.T
    system, _ = decompose_gram(gram, _values(targets, train), has_intercept=False)
    ridges = ridge_grid(float(np.trace(gram)) / len(gram), None, "learn_targets")
    dual = np.stack([system.coefficients(ridge) for ridge in ridges], axis=1)  # (n, ridges, t)
    weights = features.T @ dual.reshape(len(dual), -1)  # (features, ridges · t)
    wanted = np.tile(_values(targets, validation), len(ridges))
    scores = np.mean((_predict(module, validation, weights) - wanted) ** 2, axis=0)
    chosen = scores.reshape(len(ridges), -1).argmin(axis=0)
    weights = weights.reshape(-1, *dual.shape[1:])[:, chosen, np.arange(len(targets))]
    wanted = _values(targets, test)
    errors = np.mean((_predict(module, test, weights) - wanted) ** 2, axis=0) / wanted.var(axis=0)
    return dict(zip(targets, errors.tolist(), strict=True))


def _predict(module: Any, sets: Floats, weights: Floats) -> Floats:
    return np.concatenate([part @ weights for part in _features(module, sets)])


def _values(targets: dict[str, TokenTarget], sets: Floats) -> Floats:
    """Centered, (n, t)."""
    columns = [f(sets[:, 0], sets[:, 1:]) - f.mean for f in targets.values()]
    return np.stack(columns, axis=1)


def _features(module: Any, sets: Floats) -> Iterator[Floats]:
    """In single precision, which only makes them slightly other heads; float64 from there on.

    Every chunk has the same size, so that one program is compiled.
    """
    for start in range(0, len(sets), CHUNK_ROWS):
        part = sets[np.arange(start, start + CHUNK_ROWS) % len(sets)].astype(np.float32)
        with jax.enable_x64(False):
            found = module.features(part[:, 0], part[:, 1:])
        yield np.asarray(found[: len(sets) - start], np.float64)


AXES = {
    "n_samples": "samples n",
    "n_heads": "heads M",
    "n_keys": "keys N",
    "dimension": "dimension d",
}


def learning_chart(table: Any, target: str, against: str = "n_samples") -> Chart:
    """Mean test error of every model, with a band of one standard error over the replicates.

    Args:
        table: of a study, trial by trial: ``study.table()`` or ``store_table(file)``.
        target: the column with its errors, as "key_power_2".
        against: the parameter on the horizontal axis: n_samples, n_heads, n_keys or dimension.

    >>> import pandas as pd
    >>> trials = {"model": ["RFA"] * 4, "n_samples": [16, 16, 32, 32], "f": [0.9, 1.1, 0.4, 0.6]}
    >>> learning_chart(pd.DataFrame(trials), "f").save("f.svg").unlink()
    """
    owner = "learning_chart"
    if against not in AXES:
        raise bad_argument("against", owner, f"one of {', '.join(AXES)}", repr(against))
    missing = [name for name in (target, against, "model") if name not in table]
    if missing:
        wanted = f"a table of a study of learn_targets, with a column {missing[0]}"
        raise bad_argument("table", owner, wanted, f"the columns {', '.join(table)}")
    groups = table.dropna(subset=[target]).groupby(["model", against])[target]
    summary = groups.agg(error="mean", sem="sem").reset_index()
    summary["low"], summary["high"] = (summary["error"] + sign * summary["sem"] for sign in (-1, 1))
    return line_chart(
        summary.drop(columns="sem").to_dict("records"),
        against,
        "error",
        color="model",
        low="low",
        high="high",
        reference=1.0,
        log_x=True,
        log_y=True,
        title=f"{target} (band: one standard error, dashed: the mean)",
        x_title=AXES[against],
        y_title="test error / variance",
    )
