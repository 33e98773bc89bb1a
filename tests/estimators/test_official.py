"""scikit-learn's own checks on every class, in the flat form."""

import collections

import pytest
from sklearn.utils.estimator_checks import (
    check_estimators_partial_fit_n_features,
    check_n_features_in_after_fitting,
    parametrize_with_checks,
)

from finetti.estimators import (
    AttentionKernelRegressor,
    ConstrainedAttentionClassifier,
    ConstrainedAttentionRegressor,
    RandomFeatureAttentionClassifier,
    RandomFeatureAttentionRegressor,
    RandomFeatureMLPRegressor,
)

ESTIMATORS = [
    RandomFeatureAttentionRegressor(5),
    RandomFeatureAttentionClassifier(5),
    RandomFeatureMLPRegressor(20),
    AttentionKernelRegressor(),
    ConstrainedAttentionRegressor(5),
    ConstrainedAttentionClassifier(5),
]
# With a ridge that one pass over the rows can serve there is `partial_fit`, too.
IN_PARTS = [
    RandomFeatureAttentionRegressor(5, ridge=0.1),
    RandomFeatureAttentionClassifier(5, ridge="gcv"),
]
# A row twice is not a row of weight 2 where one row at a time is left out.
FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": "leave-one-out leaves out one of two copies",
}
RUN: collections.Counter[str] = collections.Counter()


def expected_failures(estimator):
    return FAILURES if getattr(estimator, "ridge", None) == "loo" else {}


# Some checks have tokens of length 100, whose features of length 10⁶ leave a gap of 10⁻⁴.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected_failures)
def test_what_scikit_learn_asks(estimator, check):
    check(estimator)
    RUN[type(estimator).__name__] += 1


@pytest.mark.parametrize("estimator", IN_PARTS)
@pytest.mark.parametrize(
    "check", [check_estimators_partial_fit_n_features, check_n_features_in_after_fitting]
)
def test_what_scikit_learn_asks_of_parts(estimator, check):
    assert hasattr(estimator, "partial_fit")
    check(type(estimator).__name__, estimator)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda each: type(each).__name__)
def test_the_checks_have_content(estimator):
    """More than 40 checks exist for every class (that they pass is above)."""
    from sklearn.utils.estimator_checks import estimator_checks_generator

    assert len(list(estimator_checks_generator(estimator))) > 40
