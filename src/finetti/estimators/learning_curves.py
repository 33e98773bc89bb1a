"""What random-feature models learn of the targets of paper R: a kind of trial for studies."""

from collections.abc import Iterator
from typing import Any, Literal, get_args

import jax
import numpy as np
from pydantic import PositiveInt

from finetti.attention.random_features.random_feature_attention import RandomFeatureAttention
from finetti.attention.random_features.random_feature_mlp import RandomFeatureMLP
from finetti.core.numerics.random_keys import generator, random_key
from finetti.estimators.ridge import Floats, decompose_gram, ridge_grid
from finetti.estimators.token_regression import FAMILIES, random_directions
from finetti.estimators.token_targets import TokenTarget

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
