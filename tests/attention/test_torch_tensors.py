"""PyTorch tensors are refused by name: as arrays they would leave autograd without a word."""

import jax.numpy as jnp
import numpy as np
import pytest

from finetti.attention import (
    ConditionalMean,
    DeltaRule,
    Softmax,
    cme_attention,
    cme_solve,
    softmax_attention,
    start_decoding,
)
from finetti.core.errors import UnsupportedError
from finetti.kernels import RBF

torch = pytest.importorskip("torch")

REFUSAL = r"take no PyTorch tensors.*autograd\.Function around jax\.vjp.*docs/attention\.md"
TOKENS = np.random.default_rng(0).normal(size=(3, 5, 2))


def tensors(requires_grad):
    return [torch.tensor(array, requires_grad=requires_grad) for array in TOKENS]


@pytest.mark.parametrize("requires_grad", [True, False])
@pytest.mark.parametrize(
    "call",
    [
        Softmax(),
        ConditionalMean(),
        DeltaRule(),
        cme_solve,
        lambda query, keys, values: ConditionalMean().posterior(query, keys, values),
        lambda query, keys, values: start_decoding(ConditionalMean(), keys, values, 8),
        lambda query, keys, values: RBF().gram(query, keys),
        lambda *given: softmax_attention(*(tensor[None, :, None] for tensor in given)),
        lambda *given: cme_attention(*(tensor[None, :, None] for tensor in given)),
    ],
)
def test_a_tensor_is_refused_with_the_way_to_train(call, requires_grad):
    with pytest.raises(UnsupportedError, match=REFUSAL):
        call(*tensors(requires_grad))


def test_one_tensor_among_arrays_and_tensors_in_a_list_are_refused():
    query, keys, values = TOKENS
    with pytest.raises(UnsupportedError, match=REFUSAL):
        Softmax()(query, keys, torch.tensor(values))
    with pytest.raises(UnsupportedError, match=REFUSAL):
        Softmax()(jnp.asarray(query), list(torch.tensor(keys)), values)
    with pytest.raises(UnsupportedError, match=REFUSAL):
        Softmax()(query, keys, values, mask=torch.ones(5, dtype=torch.bool))


def test_the_copy_that_the_sentence_names_is_read():
    copies = [jnp.asarray(tensor.detach().cpu().numpy()) for tensor in tensors(True)]
    np.testing.assert_array_equal(Softmax()(*copies), Softmax()(*TOKENS))
