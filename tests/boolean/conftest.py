import numpy as np
import pytest


def _features(network, bits):
    """Softmax attention of [CLS] over all tokens, one input at a time."""
    out, (block,) = [], network.blocks
    for row in bits:
        positions = network.positions.dense()
        bag = network.embedding.name == "bag"
        tokens = row[:, None] * positions if bag else network.tokens[row] + positions
        tokens = np.vstack([network.cls, tokens])
        read = 0
        for query, key, value, output in zip(
            block.query, block.key, block.value, block.output, strict=True
        ):
            scores = (network.cls @ query) @ (tokens @ key).T
            weights = np.exp(scores - scores.max())
            read = read + (weights / weights.sum()) @ tokens @ value @ output
        out.append(read)
    return np.array(out)


@pytest.fixture(scope="session")
def textbook_features():
    """A function of a network and bits: what softmax attention reads, the slow and obvious way."""
    return _features
