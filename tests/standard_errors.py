"""Means of samples against their expectation, up to their own standard error."""

import numpy as np

STANDARD_ERRORS = 5.0  # 6e-7 for each mean that is looked at


def assert_mean(samples, mean):
    """The average of ``samples`` over the first axis is ``mean`` up to five standard errors."""
    error = np.std(samples, axis=0, ddof=1) / np.sqrt(len(samples))
    assert np.all(np.abs(np.mean(samples, axis=0) - mean) <= STANDARD_ERRORS * error + 1e-12)
