"""The classes of the specification's test vectors."""

import pytest

from finetti.bounds import Sample
from finetti.bounds.sparse_variables import (
    HeadClass,
    MultiHeadClass,
    ProjectedLayerNorms,
    SoftmaxHeadNorms,
)
from finetti.bounds.sparse_variables import TransformerClass as Network

NAMES = tuple(ProjectedLayerNorms.__dataclass_fields__)
LAYERS = ((1.1, 0.8, 0.6, 0.5, 0.4, 0.3), (0.7, 1.3, 0.4, 0.3, 0.6, 0.2))
HEADS = ((0.9, 0.7, 0.8), (0.5, 0.4, 0.3), (1.1, 0.6, 0.2))


@pytest.fixture
def sample():
    """N = 50 000 points of length 1.5."""
    return Sample(n_samples=1000, context_length=50, input_norm=1.5)


@pytest.fixture
def make_head():
    def make(**fields):
        given = {
            "width": 8,
            "value_norm": 0.9,
            "value_column_norm": 0.7,
            "score_row_norm": 0.8,
            "out_lipschitz": 1.2,
        }
        return HeadClass(**{**given, **fields})

    return make


@pytest.fixture
def make_heads():
    def make(**fields):
        names = ("value_norm", "value_column_norm", "score_row_norm")
        heads = [
            SoftmaxHeadNorms(**dict(zip(names, h, strict=True)), out_lipschitz=1.2) for h in HEADS
        ]
        return MultiHeadClass(**{"heads": tuple(heads), "width": 8, **fields})

    return make


@pytest.fixture
def make_network():
    def make(**fields):
        layers = tuple(
            ProjectedLayerNorms(**dict(zip(NAMES, norms, strict=True))) for norms in LAYERS
        )
        given = {"layers": layers, "width": 8, "head_dimension": 4, "readout_norm": 2.0}
        return Network(**{**given, **fields})

    return make
