"""Tables too large for n × n matrices are refused in time, and long fits show signs of life."""

import numpy as np
import pytest

from finetti.core.errors import InputError
from finetti.estimators import (
    AttentionKernelRegressor,
    ConditionalMeanClassifier,
    ConditionalMeanRegressor,
    InstrumentalRegressor,
    KernelSmootherRegressor,
)
from finetti.estimators.memory import available_memory, check_square_matrices

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("model", "alternative"),
    [
        (ConditionalMeanRegressor(), "RandomFeatureAttentionRegressor"),
        (ConditionalMeanRegressor(ridge=0.1, fit_kernel=False), "RandomFeatureAttentionRegressor"),
        (ConditionalMeanClassifier(), "RandomFeatureAttentionClassifier"),
        (AttentionKernelRegressor(), "RandomFeatureAttentionRegressor"),
        (AttentionKernelRegressor("mlp"), "RandomFeatureMLPRegressor"),
        (InstrumentalRegressor("kernel"), 'model="linear"'),
    ],
)
def test_what_has_no_room_is_refused_before_it_is_allocated(model, alternative):
    """Terabytes: JAX would abort the interpreter, which no test could report."""
    X = RNG.normal(size=(10**6, 1))
    y = X[:, 0] > 0 if isinstance(model, ConditionalMeanClassifier) else X[:, 0]
    with pytest.raises(InputError, match=r"1000000 × 1000000 .* GB are available.*fewer") as caught:
        model.fit(X, y)
    assert alternative in str(caught.value)


def test_what_has_room_is_not_refused():
    assert available_memory() > 0
    room = int((available_memory() / 8) ** 0.5)
    check_square_matrices(room // 2, 1, "Model", "")
    with pytest.raises(InputError, match="Model keeps"):
        check_square_matrices(2 * room, 1, "Model", "")


@pytest.mark.parametrize(
    ("model", "sign"),
    [
        (ConditionalMeanRegressor(n_starts=2), "of 2 searches for the kernel"),
        (KernelSmootherRegressor(), "of 40 rows"),
        (AttentionKernelRegressor(), "of 2 steps"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_long_fit_shows_signs_of_life(model, sign, monkeypatch, capsys):
    monkeypatch.setattr("finetti.display.progress.SHORT_SECONDS", 0.0)
    X = RNG.normal(size=(40, 1))
    model.fit(X, np.sin(X[:, 0]) + 0.1 * RNG.normal(size=40))
    shown = capsys.readouterr().err
    assert shown.startswith(type(model).__name__)
    assert sign in shown
