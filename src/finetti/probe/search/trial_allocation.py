"""Choose the next trials by how much they reduce a threshold's variance, by linear Bayes."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def allocate_trials(
    weight: Array, target: Array, success: Array, share: float, least: int, most: int
) -> tuple[NDArray[np.int64], float]:
    """The numbers of trials at each candidate, and the share of the target's variance that is left.

    A trial at m, of success probability P(m) under each curve, reduces the variance of the target x
    that a linear prediction from the outcomes leaves by

        cov(x, P(m))² / (var P(m) + E[P(m)(1 − P(m))])

    and what it leaves of the covariances decides about the next one.

    Args:
        weight: of each curve; their sum is 1.
        target: x of each curve.
        success: P(m) of each curve (rows) at each candidate (columns).
        share: of the variance that is small enough.
        least, most: trials at least and at most.
    """
    x = target - weight @ target
    centered = success - weight @ success
    cross = (weight * x) @ centered
    cov = (centered * weight[:, None]).T @ centered
    noise = weight @ (success * (1 - success))
    variance = left = float(weight @ x**2)
    taken = np.zeros(len(cross), dtype=np.int64)
    while taken.sum() < least or (taken.sum() < most and left > share * variance):
        total = cov.diagonal() + noise
        gains = cross**2 / np.maximum(total, 1e-300)
        if not gains.max():  # no outcome would tell anything
            break
        # Rounded, so that processors which round otherwise decide alike.
        best = int(np.argmax(np.round(gains / gains.max(), 6)))
        gain = cov[best] / total[best]
        left -= float(cross[best] ** 2 / total[best])
        cross, cov = cross - gain * cross[best], cov - np.outer(gain, cov[best])
        taken[best] += 1
    return taken, left / variance if variance else 0.0
