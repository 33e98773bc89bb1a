"""scikit-learn's own checks on every class, in the flat form."""

import collections

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from finetti.estimators import (
    AttentionKernelRegressor,
    ConditionalMeanClassifier,
    ConditionalMeanRegressor,
    InstrumentalRegressor,
    KernelSmootherRegressor,
    RandomFeatureAttentionClassifier,
    RandomFeatureAttentionRegressor,
    RandomFeatureMLPRegressor,
)
from finetti.kernels import RBF

ESTIMATORS = [
    RandomFeatureAttentionRegressor(5),
    RandomFeatureAttentionClassifier(5),
    RandomFeatureMLPRegressor(20),
    AttentionKernelRegressor(),
    ConditionalMeanRegressor(n_starts=1),
    ConditionalMeanRegressor(RBF(), ridge=0.1, fit_kernel=False),
    ConditionalMeanClassifier(RBF(), ridge=0.1, fit_kernel=False),
    KernelSmootherRegressor(),
    InstrumentalRegressor(),
    InstrumentalRegressor("kernel"),
]
REPEATS = "check_sample_weight_equivalence_on_dense_data"  # a row twice is a row of weight 2


def failures(estimator):
    """What is expected to fail, and why."""
    if isinstance(estimator, ConditionalMeanRegressor | ConditionalMeanClassifier):
        reason = "two equal rows also say that the noise is small; a weight does not"
        return {REPEATS: reason} if estimator.fit_kernel else {}
    if isinstance(estimator, InstrumentalRegressor):
        reason = "the default lengthscale is the median distance of the rows"
        return {REPEATS: reason} if estimator.model == "kernel" else {}
    return {REPEATS: "leave-one-out leaves out one of two copies"}


RUN: collections.Counter[str] = collections.Counter()


# Some of the tables say nothing about a kernel.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(ESTIMATORS, expected_failed_checks=failures)
def test_what_scikit_learn_asks(estimator, check):
    check(estimator)
    RUN[type(estimator).__name__] += 1


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda each: type(each).__name__)
def test_the_checks_have_content(estimator):
    """More than 40 checks exist for every class (that they pass is above)."""
    from sklearn.utils.estimator_checks import estimator_checks_generator

    assert len(list(estimator_checks_generator(estimator))) > 40
