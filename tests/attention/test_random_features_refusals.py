"""What random-feature models refuse, and that the error names the argument."""

import jax
import jax.numpy as jnp
import pytest

from finetti.attention.random_features.infinite_heads import InfiniteHeadKernel
from finetti.attention.random_features.infinite_mlp import InfiniteMLPKernel
from finetti.attention.random_features.random_feature_attention import RandomFeatureAttention
from finetti.attention.random_features.random_feature_mlp import RandomFeatureMLP
from finetti.core.errors import InputError, UnsupportedError

KEY = jax.random.key(0)
QUERY, KEYS = jnp.ones(3), jnp.ones((5, 3))
ATTENTION = RandomFeatureAttention(KEY, 4, 3)
NETWORK = RandomFeatureMLP(KEY, 4, 3, 5)


@pytest.mark.parametrize("count", [0, -1, 2.5, True, None])
@pytest.mark.parametrize("name", ["n_heads", "dimension", "output_dimension", "head_dimension"])
def test_attention_refuses_what_is_not_a_count(name, count):
    arguments = {
        "n_heads": 4,
        "dimension": 3,
        "output_dimension": 2,
        "sampling": "factored",
        "head_dimension": 2,
    } | {name: count}
    if name == "output_dimension" and count is None:
        assert RandomFeatureAttention(KEY, **arguments).values.ndim == 2
        return
    with pytest.raises(InputError, match=f"`{name}` argument of RandomFeatureAttention"):
        RandomFeatureAttention(KEY, **arguments)


@pytest.mark.parametrize("name", ["n_neurons", "dimension", "context_length"])
def test_network_refuses_what_is_not_a_count(name):
    arguments = {"n_neurons": 4, "dimension": 3, "context_length": 5} | {name: 0}
    with pytest.raises(InputError, match=f"`{name}` argument of RandomFeatureMLP"):
        RandomFeatureMLP(KEY, **arguments)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("activation", {"activation": "gelu"}),
        ("sampling", {"sampling": "sparse"}),
        ("head_dimension", {"head_dimension": 2}),
        ("mean_weights", {"mean_weights": "ones"}),
        ("mean_weights", {"mean_weights": jnp.ones((2, 2))}),
        ("mean_weights", {"mean_weights": jnp.ones(3)}),
        ("mean_weights", {"mean_weights": jnp.full((3, 3), jnp.nan)}),
    ],
)
def test_attention_refuses_unknown_options(name, options):
    with pytest.raises(InputError, match=f"`{name}` argument of RandomFeatureAttention must be"):
        RandomFeatureAttention(KEY, 4, 3, **options)


@pytest.mark.parametrize("module", [ATTENTION, NETWORK], ids=["attention", "network"])
@pytest.mark.parametrize("method", ["__call__", "features"])
@pytest.mark.parametrize(
    ("name", "query", "keys"),
    [
        ("query", jnp.ones(2), KEYS),
        ("query", jnp.full(3, jnp.nan), KEYS),
        ("query", jnp.ones((2, 3)), jnp.ones((4, 5, 3))),
        ("keys", QUERY, jnp.ones(3)),
        ("keys", QUERY, jnp.ones((0, 3))),
        ("keys", QUERY, KEYS.at[0, 0].set(jnp.inf)),
        ("keys", jnp.ones(2), jnp.ones((5, 2))),
    ],
)
def test_bad_tokens_are_refused(module, method, name, query, keys):
    with pytest.raises(InputError, match=f"`{name}` argument of {type(module).__name__}"):
        getattr(module, method)(query, keys)


def test_bad_masks_are_refused():
    with pytest.raises(InputError, match="`mask` argument of RandomFeatureAttention"):
        ATTENTION(QUERY, KEYS, jnp.ones(4, bool))
    with pytest.raises(InputError, match=r"`mask` argument of .*features must be boolean"):
        ATTENTION.features(QUERY, KEYS, jnp.ones(5))


@pytest.mark.parametrize("owner", [NETWORK, NETWORK.features], ids=["call", "features"])
def test_the_network_takes_no_mask_and_no_other_number_of_keys(owner):
    with pytest.raises(UnsupportedError, match=r"takes no `mask`.* RandomFeatureAttention"):
        owner(QUERY, KEYS, jnp.ones(5, bool))
    with pytest.raises(InputError, match=r"`keys` argument of RandomFeatureMLP.* N = 5"):
        owner(QUERY, KEYS[:4])


@pytest.mark.parametrize("shape", [(4, 3), (16,), (4, 4, 1, 1), (4, 4, 0)])
def test_values_of_another_shape_are_refused(shape):
    with pytest.raises(InputError, match=r"`values` argument of .*with_values must be of shape"):
        ATTENTION.with_values(jnp.ones(shape))
    with pytest.raises(InputError, match="`values` argument of RandomFeatureMLP"):
        NETWORK.with_values(jnp.ones((5, *shape)))
    with pytest.raises(InputError, match=r"`values` argument of .* must be finite"):
        NETWORK.with_values(jnp.full(4, jnp.nan))


def test_the_softmax_variant_has_no_infinite_kernel():
    softmax = RandomFeatureAttention(KEY, 4, 3, activation="softmax")
    with pytest.raises(UnsupportedError, match=r"softmax .* no infinite-head kernel .* sum over"):
        softmax.infinite_kernel()
    with pytest.raises(UnsupportedError, match="`features` with many heads"):
        InfiniteHeadKernel(3, activation="softmax")


def test_factored_heads_have_no_closed_form():
    factored = RandomFeatureAttention(KEY, 4, 3, sampling="factored", head_dimension=2)
    with pytest.raises(UnsupportedError, match=r"factored .* not Gaussian.* InfiniteHeadKernel"):
        factored.infinite_kernel()


@pytest.mark.parametrize("kernel", [InfiniteHeadKernel(3), InfiniteMLPKernel(3, 5)])
def test_kernels_refuse_bad_input_by_name(kernel):
    owner = type(kernel).__name__
    with pytest.raises(InputError, match=rf"`other_keys` argument of {owner} must be of shape"):
        kernel(QUERY, KEYS, QUERY, KEYS[0])
    with pytest.raises(InputError, match=rf"`query` argument of {owner}.gram must be of shape"):
        kernel.gram(QUERY, KEYS[None])
    with pytest.raises(InputError, match=rf"`other_keys` argument of {owner} must be of"):
        kernel(QUERY, KEYS, jnp.ones(2), jnp.ones((5, 2)))
    with pytest.raises(InputError, match="`other_query` and `other_keys` together"):
        kernel.gram(QUERY[None], KEYS[None], QUERY[None])
    with pytest.raises(InputError, match="`other_mask`"):
        kernel.gram(QUERY[None], KEYS[None], other_mask=jnp.ones((1, 5), bool))
    with pytest.raises(InputError, match=rf"`query` argument of {owner} must be finite"):
        kernel(QUERY.at[0].set(jnp.nan), KEYS, QUERY, KEYS)


def test_the_network_kernel_takes_no_mask():
    with pytest.raises(UnsupportedError, match="takes no `other_mask`"):
        InfiniteMLPKernel(3, 5)(QUERY, KEYS, QUERY, KEYS, other_mask=jnp.ones(5, bool))


def test_kernels_refuse_unknown_options():
    with pytest.raises(InputError, match="`activation` argument of InfiniteHeadKernel"):
        InfiniteHeadKernel(3, activation="gelu")
    with pytest.raises(InputError, match="`mean_weights` argument of InfiniteHeadKernel"):
        InfiniteHeadKernel(3, jnp.ones((2, 3)))
    with pytest.raises(InputError, match="`dimension` argument of InfiniteHeadKernel"):
        InfiniteHeadKernel(0)
    with pytest.raises(InputError, match="`context_length` argument of InfiniteMLPKernel"):
        InfiniteMLPKernel(3, 0)
