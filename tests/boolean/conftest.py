import numpy as np
import pytest


def _features(compiled, bits):
    """Softmax attention of [CLS] over all tokens, one input at a time."""
    out, network = [], compiled.network
    for row in bits:
        positions = network.positions.dense()
        bag = network.embedding.name == "bag"
        tokens = row[:, None] * positions if bag else network.tokens[row] + positions
        tokens = np.vstack([network.cls, tokens])
        read = 0
        for query, key, value, output in zip(*network.heads, strict=True):
            scores = (network.cls @ query) @ (tokens @ key).T
            weights = np.exp(scores - scores.max())
            read = read + (weights / weights.sum()) @ tokens @ value @ output
        out.append(read)
    return np.array(out)


@pytest.fixture(scope="session")
def textbook_features():
    """A function of a network and bits: what softmax attention reads, the slow and obvious way."""
    return _features


@pytest.fixture(scope="session")
def all_features():
    """A function of a network at [CLS]: its features on all 2^T inputs, in order."""
    return lambda compiled: np.concatenate(
        [compiled.network.float64.features(s) for _, s in compiled.network.float64.enumerate_sums()]
    )
