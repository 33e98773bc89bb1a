"""Attention modules as predictors: keys and values are the context."""

from typing import Any

import numpy as np

from finetti.coherence.predictors.context_predictor import RegressionPredictor
from finetti.core.arguments import Floats

LENGTH, QUERIES, CONTEXTS = 16, 16, 128  # sizes are rounded up to these: little is compiled


class AttentionPredictor(RegressionPredictor):
    """m(q; X) = attn(q, K, V), in float64.

    `ConditionalMean` also has a law: its posterior, and the noise λ of a new value.
    """

    linear = True

    def __init__(self, attention: Any, name: str = ""):
        from finetti.attention.cme.conditional_mean import ConditionalMean

        self.attention, self.name = attention, name or repr(attention)
        self.gives_variance = isinstance(attention, ConditionalMean)

    def answer(
        self, query: Floats, keys: Floats, values: Floats, variance: bool
    ) -> tuple[Floats, Floats | None]:
        """All contexts in calls of one shape; what fills them up is masked."""
        from finetti.core.numerics.float64 import float64
        from finetti.kernels.kernel import in_float64

        n, asked, length = len(keys), query.shape[1], keys.shape[1]
        queries, whole = _filled(asked, QUERIES), _filled(length, LENGTH)
        means, variances = [], []
        with float64():
            attention: Any = in_float64(self.attention)
            for start in range(0, n, CONTEXTS):
                chunk = slice(start, start + CONTEXTS)
                parts = (query, queries), (keys, whole), (values, whole)
                arrays = [_padded(array[chunk], size) for array, size in parts]
                mask = np.zeros((CONTEXTS, whole), bool)
                mask[:, :length] = True
                if self.gives_variance:  # one program for both
                    mean, spread = attention.posterior(*arrays, mask, predictive=True)
                    variances.append(np.asarray(spread)[: n - start, :asked, None])
                else:
                    mean = attention(*arrays, mask)
                means.append(np.asarray(mean)[: n - start, :asked])
        mean = np.concatenate(means)
        if not (variance and self.gives_variance):
            return mean, None
        return mean, np.broadcast_to(np.concatenate(variances), mean.shape)


def _filled(size: int, unit: int) -> int:
    return max(1, -(-size // unit)) * unit


def _padded(array: Floats, size: int) -> Floats:
    """Filled up to ``size`` rows and CONTEXTS contexts, by copies of the last of each."""
    if not array.shape[1]:
        array = np.zeros((len(array), 1, array.shape[2]))
    array = array[:, np.minimum(np.arange(size), array.shape[1] - 1)]
    return array[np.minimum(np.arange(CONTEXTS), len(array) - 1)]
