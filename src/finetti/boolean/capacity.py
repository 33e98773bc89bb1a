"""The other side of the coin: how large the class is that the compiled head comes from."""

import numpy as np

from finetti.boolean.network.head_weights import HeadWeights
from finetti.bounds.sample import Sample
from finetti.bounds.sparse_variables.head_class import HeadClass, MultiHeadClass, SoftmaxHeadNorms
from finetti.bounds.sparse_variables.networks import HeadCovering, MultiHeadCovering
from finetti.bounds.value import BoundValue
from finetti.core.norms import max_column_norm, spectral


def _norms(head: HeadWeights, index: int) -> dict[str, float]:
    # W_QK = W_Q W_Kᵀ has rank 1 here, and is d × d: its rows are those of W_Q times ‖W_K‖.
    query, key = head.query[index], head.key[index]
    rows = float(np.abs(query).max()) * float(np.linalg.norm(key))
    return {
        "value_norm": float(spectral(head.value[index])),
        "value_column_norm": float(max_column_norm(head.value[index])),
        "score_row_norm": rows,
        "out_lipschitz": float(spectral(head.output[index])),
    }


def capacity(head: HeadWeights, resolution: float, n_samples: int = 1000) -> BoundValue:
    """log N_∞ of all heads with the compiled norms, at the resolution that the lookup needs.

    It grows with log T: of the heads that can compute such rules there are few (Corollary 4.4 for
    one head, Lemma A.12 for several, edelman2022). BitPositions count as fixed: the cost of trained
    ones, linear in T, is not in it.

    Args:
        head: the weights.
        resolution: ε.
        n_samples: m, how many sequences the cover is for.
    """
    n_values = head.value.shape[2]
    sample = Sample(n_samples, head.context_length, input_norm=head.embedding.token_norm)
    sizes = {
        "width": head.width,
        "head_dimension": n_values,
        "query_norm": 1.0,
        "class_token": True,
    }
    if head.n_heads == 1:
        single = HeadClass(**_norms(head, 0), **sizes)
        return HeadCovering(single, resolution).evaluate(sample)
    heads = tuple(SoftmaxHeadNorms(**_norms(head, each)) for each in range(head.n_heads))
    return MultiHeadCovering(MultiHeadClass(heads=heads, **sizes), resolution).evaluate(sample)
