"""Causal softmax and smoothers, or with a mask per query: blocks of queries are a loop of them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti.attention import KernelSmoother, Softmax, context_batch
from finetti.core.errors import InputError
from finetti.kernels import RBF

MEMBERS = {"softmax": Softmax(0.8), "smoother": KernelSmoother(RBF(0.7))}
members = pytest.mark.parametrize("module", MEMBERS.values(), ids=MEMBERS)
LENGTH = 11
CAUSAL = np.tril(np.ones((LENGTH, LENGTH), bool))


@pytest.fixture(params=[2**19, 4 * LENGTH], ids=["one block", "three blocks"])
def block_entries(request, monkeypatch, recompiled):
    """11 queries at once, or 4, 4 and 3."""
    monkeypatch.setattr(context_batch, "MAX_BLOCK_ENTRIES", request.param)
    monkeypatch.setattr(context_batch, "MAX_SHARED_ENTRIES", request.param)


def draw(batch=2):
    rng = np.random.default_rng(0)
    tokens = tuple(jnp.asarray(rng.normal(size=(batch, LENGTH, width))) for width in (3, 3, 2))
    masks = rng.random((batch, LENGTH, LENGTH)) < 0.7
    masks[0, 3] = False  # a query that reads nothing
    return tokens, masks


def one_by_one(module, tokens, masks):
    """The slow, obvious reference: every query by itself, its mask a mask of keys."""
    return jax.vmap(jax.vmap(module, (0, None, None, 0)))(*tokens, masks)


@functools.partial(jax.jit, static_argnums=0)
def answer_and_gradients(read, module, tokens, mask):
    def loss(module, tokens):
        out = read(module, tokens, mask)
        return jnp.sum(jnp.sin(out)), out

    return jax.grad(loss, argnums=(0, 1), has_aux=True)(module, tokens)


@members
@pytest.mark.parametrize(
    ("per_query", "is_causal"),
    [(True, False), (True, True), (False, True), (None, True), (False, False)],
)
def test_values_and_gradients_are_those_of_the_loop(module, per_query, is_causal, block_entries):
    tokens, masks = draw()
    own = {True: masks, False: masks[:, 5], None: None}[per_query]
    full = {True: masks, False: masks[:, 5:6], None: np.ones_like(masks)}[per_query]
    full = np.broadcast_to(full, masks.shape)
    ours = answer_and_gradients(
        lambda module, tokens, mask: module(*tokens, mask, is_causal=is_causal), module, tokens, own
    )
    slow = answer_and_gradients(one_by_one, module, tokens, full & CAUSAL if is_causal else full)
    for one, other in zip(*map(jax.tree.leaves, (ours, slow)), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-10)


@members
def test_weights_do_not_see_the_future(module, block_entries):
    (query, keys, values), _ = draw()
    weights = module.weights(query, keys, is_causal=True)
    assert not np.any(np.asarray(weights)[:, ~CAUSAL])
    np.testing.assert_allclose(
        weights @ values, module(query, keys, values, is_causal=True), atol=1e-12
    )


def test_several_query_axes_have_their_positions_in_the_last(block_entries):
    (query, keys, values), _ = draw(1)
    both = jnp.stack([query[0], query[0] + 1])
    out = Softmax()(both, keys[0], values[0], is_causal=True)
    for one, alone in zip(out, both, strict=True):
        expected = Softmax()(alone, keys[0], values[0], jnp.asarray(CAUSAL))
        np.testing.assert_allclose(one, expected, atol=1e-12)
    with pytest.raises(InputError, match="axis of positions"):
        Softmax()(query[0, 0], keys[0], values[0], is_causal=True)


def test_memory_is_linear_in_the_length():
    """No array of the compiled program, forward or backward, holds Q × L numbers."""
    length = 4096
    tokens = [jax.ShapeDtypeStruct((length, width), jnp.float32) for width in (4, 4, 2)]

    def loss(*tokens):
        return jnp.sum(Softmax()(*tokens, is_causal=True))

    text = str(jax.make_jaxpr(jax.grad(loss, argnums=(0, 1, 2)))(*tokens))
    assert f"[{context_batch.MAX_BLOCK_ENTRIES // length},{length}]" in text
    assert f"[{length},{length}]" not in text
