import numpy as np
import pytest


def _features(head, bits):
    """Softmax attention of [CLS] over all tokens, one input at a time."""
    out = []
    for row in bits:
        positions = head.positions.dense()
        bag = head.embedding.name == "bag"
        tokens = row[:, None] * positions if bag else head.tokens[row] + positions
        tokens = np.vstack([head.cls, tokens])
        read = 0
        for query, key, value, output in zip(
            head.query, head.key, head.value, head.output, strict=True
        ):
            scores = (head.cls @ query) @ (tokens @ key).T
            weights = np.exp(scores - scores.max())
            read = read + (weights / weights.sum()) @ tokens @ value @ output
        out.append(read)
    return np.array(out)


@pytest.fixture(scope="session")
def textbook_features():
    """A function of a head and bits: what softmax attention reads, the slow and obvious way."""
    return _features
