"""Erratum 4: the printed weights of s heads multiply to zero."""

import numpy as np

from finetti.claims.claim import Claim, Context, Evidence, Verdict, at_least
from finetti.claims.sparse_variables.boolean_cases import THREE

LENGTH = 10


def run(context: Context) -> Evidence:
    """How far apart the printed features of different settings are, over all inputs."""
    from finetti.boolean.heads.printed import printed_sign_heads

    features = printed_sign_heads(LENGTH, THREE).tables.all_features
    spread = float(np.ptp(features, axis=0).max())
    return Evidence(
        (at_least("largest difference between features of two inputs", spread, 2.0),),
        note="W_V writes e_2 and W_C reads e_1. S-lemma-B.2 has e_1 in both.",
    )


CLAIM = Claim(
    id="S-erratum-4",
    title="printed: W_V with e_2, W_C with e_1",
    statement="With W_V = (E_0 − E_1)e_2ᵀ and W_C^h = e_1e_hᵀ the s heads of Lemma B.2 are "
    "2-injective.",
    paper="S",
    label="Lemma B.2, s heads",
    run=run,
    expected=Verdict.FAILS,
    erratum="e_2ᵀe_1 = 0: the output is zero for every input. Both must be e_1.",
)
