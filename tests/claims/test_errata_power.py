"""A bug does not keep an erratum green: what returns zeros makes its derived form fail, too."""

import jax.numpy as jnp
import pytest

from finetti.attention import ConditionalMean, KernelSmoother, Softmax
from finetti.claims import Context, load_ledger, run_claim


def zeros(self, query, keys, values, mask=None, *, is_causal=False):
    """Attention that reads nothing."""
    query, values = jnp.asarray(query), jnp.asarray(values)
    return jnp.zeros((*query.shape[:-1], values.shape[-1]))


@pytest.mark.parametrize(
    ("broken", "claim_id"),
    [
        (ConditionalMean, "E-erratum-1"),
        (ConditionalMean, "E-erratum-2"),
        (Softmax, "E-erratum-4"),
        (Softmax, "E-erratum-4-limit"),
        (KernelSmoother, "E-erratum-5"),
        (KernelSmoother, "E-erratum-6"),
        (Softmax, "E-erratum-7"),
    ],
)
def test_attention_that_returns_zeros_is_no_erratum(monkeypatch, broken, claim_id):
    monkeypatch.setattr(broken, "__call__", zeros)
    result = run_claim(load_ledger().get(claim_id), Context())
    assert result.error is None, result.error
    assert not result.as_expected
