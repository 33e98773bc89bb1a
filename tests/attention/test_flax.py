"""Inside Flax networks, linen and nnx: masks arrive, training works, dropout is refused."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from finetti.attention import (
    cme_attention,
    delta_rule_attention,
    flax_attention_fn,
    linear_attention,
    local_linear_attention,
    softmax_attention,
)
from finetti.core.errors import InputError

LENGTHS = jnp.array([6, 4])
VALID = jnp.arange(6)[None] < LENGTHS[:, None]
PADDING = nn.make_attention_mask(VALID, VALID)
CAUSAL = nn.make_causal_mask(jnp.ones((2, 6)))
MASKS = {"none": None, "padding": PADDING, "causal": nn.combine_masks(PADDING, CAUSAL)}


@pytest.fixture
def x():
    # Flax's own initializers are float32; the strict promotion of these tests wants one dtype.
    return jax.random.normal(jax.random.key(0), (2, 6, 8), jnp.float32)


def linen_layer(attention_fn, x):
    layer = nn.MultiHeadDotProductAttention(num_heads=2, attention_fn=attention_fn)
    return layer, layer.init(jax.random.key(1), x, x)


def nnx_layer(attention_fn):
    return nnx.MultiHeadAttention(
        num_heads=2, in_features=8, decode=False, rngs=nnx.Rngs(0), attention_fn=attention_fn
    )


@pytest.mark.parametrize("name", MASKS)
def test_softmax_in_linen_is_flax_itself(x, name):
    layer, params = linen_layer(flax_attention_fn(softmax_attention), x)
    theirs = nn.MultiHeadDotProductAttention(num_heads=2)
    ours = layer.apply(params, x, x, mask=MASKS[name])
    np.testing.assert_allclose(ours, theirs.apply(params, x, x, mask=MASKS[name]), atol=2e-6)


@pytest.mark.parametrize("lead", [(1, 2, 1), (3, 1, 1), (2, 1), (1,), ()])
def test_masks_are_broadcast_as_in_flax(lead):
    x = jax.random.normal(jax.random.key(0), (3, 2, 6, 8), jnp.float32)
    mask = jax.random.bernoulli(jax.random.key(2), 0.6, (*lead, 6, 6))
    layer, params = linen_layer(flax_attention_fn(softmax_attention), x)
    theirs = nn.MultiHeadDotProductAttention(num_heads=2)
    ours = layer.apply(params, x, x, mask=mask)
    np.testing.assert_allclose(ours, theirs.apply(params, x, x, mask=mask), atol=2e-6)


@pytest.mark.parametrize("name", MASKS)
def test_softmax_in_nnx_is_flax_itself(x, name):
    mask = MASKS[name]
    ours = nnx_layer(flax_attention_fn(softmax_attention))(x, mask=mask)
    theirs = nnx_layer(nnx.dot_product_attention)(x, mask=mask)
    np.testing.assert_allclose(ours, theirs, atol=2e-6)


@pytest.mark.parametrize("make", ["linen", "nnx"])
def test_masks_reach_cme_attention(x, make):
    """Padding behaves as deletion, and the future does not matter."""
    attention_fn = flax_attention_fn(cme_attention, ridge=0.1)
    if make == "linen":
        layer, params = linen_layer(attention_fn, x)
        run = jax.jit(lambda x, mask: layer.apply(params, x, x, mask=mask))
    else:
        layer = nnx_layer(attention_fn)
        run = jax.jit(lambda x, mask: layer(x, mask=mask))
    padded = run(x, PADDING)
    np.testing.assert_allclose(padded[1:, :4], run(x[1:, :4], None), atol=1e-5)
    causal = run(x, MASKS["causal"])
    np.testing.assert_allclose(causal[:, :2], run(x[:, :2], CAUSAL[:, :, :2, :2]), atol=1e-5)
    assert not np.allclose(causal[0, 1], padded[0, 1], atol=1e-3)


@pytest.mark.parametrize(
    "function", [linear_attention, delta_rule_attention, local_linear_attention]
)
def test_masks_reach_the_rest_of_the_family(x, function):
    """Padding behaves as deletion; a causal mask is is_causal, the fast way to the same."""
    layer, params = linen_layer(flax_attention_fn(function), x)
    padded = layer.apply(params, x, x, mask=PADDING)
    np.testing.assert_allclose(padded[1:, :4], layer.apply(params, x[1:, :4], x[1:, :4]), atol=2e-6)
    fast, _ = linen_layer(flax_attention_fn(function, key_mask=True, is_causal=True), x)
    seen = np.asarray(VALID)
    np.testing.assert_allclose(
        fast.apply(params, x, x, mask=MASKS["causal"])[seen],
        layer.apply(params, x, x, mask=MASKS["causal"])[seen],
        atol=2e-6,
    )


def test_a_key_mask_and_is_causal_are_the_fast_way_to_the_same(x):
    slow, params = linen_layer(flax_attention_fn(cme_attention, ridge=0.1), x)
    fast, _ = linen_layer(
        flax_attention_fn(cme_attention, ridge=0.1, key_mask=True, is_causal=True), x
    )
    seen = np.asarray(VALID)
    np.testing.assert_allclose(
        fast.apply(params, x, x, mask=MASKS["causal"])[seen],
        slow.apply(params, x, x, mask=MASKS["causal"])[seen],
        atol=1e-5,
    )


@pytest.mark.parametrize("options", [{}, {"is_causal": True}], ids=["alone", "is_causal"])
def test_a_key_mask_never_shows_what_the_mask_hides(x, options):
    """A mask that differs between queries is refused; inside jit its queries get NaN."""
    layer, params = linen_layer(flax_attention_fn(cme_attention, key_mask=True, **options), x)
    hidden = CAUSAL.at[:, :, 2, 0].set(0) if options else MASKS["causal"]
    with pytest.raises(InputError, match="`mask` argument of an attention_fn with key_mask=True"):
        layer.apply(params, x, x, mask=hidden)
    run = jax.jit(lambda mask: layer.apply(params, x, x, mask=mask))
    shown = CAUSAL if options else PADDING
    np.testing.assert_allclose(run(shown), layer.apply(params, x, x, mask=shown), atol=1e-6)
    unknown = np.isnan(run(hidden)).all(axis=-1)
    assert unknown[0].tolist() == [t == 2 if options else t < 5 for t in range(6)]


@pytest.mark.parametrize("lead", [(3, 2), (6,)])
def test_batches_that_do_not_match_are_refused_as_in_flax(lead):
    query, other = jnp.ones((2, 3, 4, 2, 8)), jnp.ones((*lead, 4, 2, 8))
    attention_fn = flax_attention_fn(softmax_attention)
    for name, pair in (("key", (other, other)), ("value", (query, other))):
        with pytest.raises(InputError, match=f"`{name}` argument of attention_fn"):
            attention_fn(query, *pair)


def test_softmax_weights_are_sown_as_in_flax(x):
    layer, params = linen_layer(flax_attention_fn(softmax_attention), x)
    theirs = nn.MultiHeadDotProductAttention(num_heads=2)
    options = {"mask": PADDING, "sow_weights": True, "mutable": ["intermediates"]}
    ours, expected = (
        network.apply(params, x, x, **options)[1]["intermediates"]["attention_weights"][0]
        for network in (layer, theirs)
    )
    np.testing.assert_allclose(ours, expected, atol=2e-6)


@pytest.mark.parametrize("function", [cme_attention, delta_rule_attention])
def test_sown_weights_give_back_the_answer(function):
    class Sown(list):
        def sow(self, _, name, array):
            self.append((name, array))

    tokens = jax.random.normal(jax.random.key(0), (3, 2, 6, 2, 4))
    sown = Sown()
    out = flax_attention_fn(function)(*tokens, module=sown, mask=PADDING)
    weights = dict(sown)["attention_weights"]
    np.testing.assert_allclose(jnp.einsum("bnts,bsnd->btnd", weights, tokens[2]), out, atol=1e-6)


def test_nnx_passes_is_causal(x):
    layer = nnx_layer(flax_attention_fn(cme_attention, ridge=0.1))
    np.testing.assert_allclose(layer(x, is_causal=True), layer(x, mask=CAUSAL), atol=1e-5)


def test_dropout_is_refused_by_name(x):
    layer = nn.MultiHeadDotProductAttention(
        num_heads=2, dropout_rate=0.1, attention_fn=flax_attention_fn(cme_attention)
    )
    params = layer.init(jax.random.key(0), x, x, deterministic=True)
    with pytest.raises(InputError, match="dropout_rate"):
        layer.apply(params, x, x, deterministic=False, rngs={"dropout": jax.random.key(1)})
    assert layer.apply(params, x, x, deterministic=True).shape == x.shape


def regression_task(key):
    """In-context regression: the last token asks for the value of a linear function."""
    latent, tokens = jax.random.split(key)
    weights = jax.random.normal(latent, (32, 1, 3), jnp.float32)
    inputs = jax.random.normal(tokens, (32, 6, 3), jnp.float32)
    targets = jnp.sum(weights * inputs, axis=2, keepdims=True)
    shown = targets.at[:, -1].set(0.0)
    return jnp.concatenate([inputs, shown, jnp.ones_like(shown)], axis=2), targets[:, -1]


def test_a_linen_network_trains():
    class Network(nn.Module):
        @nn.compact
        def __call__(self, tokens):
            hidden = nn.Dense(8)(tokens)
            attend = flax_attention_fn(cme_attention, ridge=0.1)
            hidden = hidden + nn.MultiHeadDotProductAttention(2, attention_fn=attend)(
                hidden, hidden
            )
            return nn.Dense(1)(nn.relu(hidden))[:, -1]

    network = Network()
    batch = regression_task(jax.random.key(0))
    params = network.init(jax.random.key(0), batch[0])
    optimizer = optax.adam(1e-2)

    def loss(params, batch):
        return jnp.mean((network.apply(params, batch[0]) - batch[1]) ** 2)

    @jax.jit
    def step(state):
        params, moments = state
        value, gradient = jax.value_and_grad(loss)(params, batch)
        update, moments = optimizer.update(gradient, moments)
        return (optax.apply_updates(params, update), moments), value

    state = (params, optimizer.init(params))
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        losses = []
        for _ in range(60):
            state, value = step(state)
            losses.append(float(value))
    assert losses[-1] < 0.5 * losses[0]


def test_an_nnx_network_trains(x):
    layer = nnx_layer(flax_attention_fn(cme_attention, ridge=0.1))
    optimizer = nnx.Optimizer(layer, optax.adam(1e-2), wrt=nnx.Param)
    target = jnp.roll(x, 1, axis=1)

    @nnx.jit
    def step(layer, optimizer):
        value, gradient = nnx.value_and_grad(
            lambda layer: jnp.mean((layer(x, mask=PADDING) - target) ** 2)
        )(layer)
        optimizer.update(layer, gradient)
        return value

    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        losses = [float(step(layer, optimizer)) for _ in range(30)]
    assert losses[-1] < 0.9 * losses[0]
