"""Random-feature attention and network: the fast path is the slow, obvious one."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy

from finetti.attention import context_batch
from finetti.attention.random_features.random_feature_attention import RandomFeatureAttention
from finetti.attention.random_features.random_feature_mlp import RandomFeatureMLP

D, N, M = 2, 3, 4
MEAN = np.random.default_rng(90).normal(size=(D + 1, D + 1))
MEMBERS = {
    "rfa": {},
    "brfa": {"mean_weights": "identity"},
    "brfa-matrix": {"mean_weights": MEAN},
    "brfa-small-matrix": {"mean_weights": MEAN[:D, :D]},
    "exponential": {"activation": "exponential", "mean_weights": MEAN},
    "softmax": {"activation": "softmax"},
}
KINDS = ["brfa", "exponential", "softmax"]  # what differs in arithmetic
members = pytest.mark.parametrize("options", MEMBERS.values(), ids=MEMBERS.keys())
kinds = pytest.mark.parametrize("options", [MEMBERS[kind] for kind in KINDS], ids=KINDS)


def normal(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


def unit(seed, *shape):
    tokens = np.random.default_rng(seed).normal(size=shape)
    return jnp.asarray(tokens / np.linalg.norm(tokens, axis=-1, keepdims=True))


def attention(options, output_dimension=None, seed=0, n_heads=M):
    module = RandomFeatureAttention(jax.random.key(seed), n_heads, D, output_dimension, **options)
    return module.with_values(normal(seed + 1, *module.values.shape))


def network(output_dimension=None):
    module = RandomFeatureMLP(jax.random.key(0), M, D, N, output_dimension)
    return module.with_values(normal(1, *module.values.shape))


def reference_features(options, draws, query, keys, xp=np):
    """One query and its keys, per head and key, straight from the formula."""
    mean = np.zeros((D + 1, D + 1))
    given = options.get("mean_weights")
    if isinstance(given, str):
        mean = np.diag([1.0] * D + [0.0])
    elif given is not None:
        mean[: len(given), : len(given)] = given
    tilde = [xp.append(key, 1.0) for key in xp.asarray(keys)]
    token = xp.append(query, 1.0)
    features = []
    for draw in xp.asarray(draws):
        scores = [xp.sum((mean + draw) * xp.outer(token, key)) for key in tilde]
        activation = options.get("activation", "relu")
        if activation == "relu":
            weights = [xp.maximum(score, 0.0) / len(keys) for score in scores]
        elif activation == "exponential":
            weights = [xp.exp(score) / len(keys) for score in scores]
        else:
            total = sum(xp.exp(score) for score in scores)
            weights = [xp.exp(score) / total for score in scores]
        features.append(sum(w * key for w, key in zip(weights, tilde, strict=True)))
    return xp.stack(features)  # (M, d+1)


@pytest.fixture
def _tiny_blocks(monkeypatch):
    """Every loop over blocks runs and leaves a remainder."""
    monkeypatch.setattr(context_batch, "MAX_BLOCK_ENTRIES", 2 * N)


def check_values(options, n_heads, count):
    query, keys = unit(2, count, D), unit(3, count, N, D)
    module, vector = (attention(options, size, n_heads=n_heads) for size in (None, 2))
    expected = np.stack(
        [reference_features(options, module.draws, *pair) for pair in zip(query, keys, strict=True)]
    )
    features = module.features(query, keys)
    np.testing.assert_allclose(features, expected.reshape(count, -1) * n_heads**-0.5, atol=1e-10)
    np.testing.assert_allclose(
        module(query, keys), np.tensordot(expected, module.values, 2), atol=1e-10
    )
    np.testing.assert_allclose(
        vector(query, keys), np.tensordot(expected, vector.values, 2), atol=1e-10
    )


def check_gradients(options, n_heads, count):
    query, keys = unit(4, count, D), unit(5, count, N, D)
    module, weights = attention(options, n_heads=n_heads), jnp.linspace(-1, 2, count)

    def fast(values, query, keys):
        return jnp.sum(weights * module.with_values(values)(query, keys))

    def slow(values, query, keys):
        features = [
            reference_features(options, module.draws, q, k, jnp)
            for q, k in zip(query, keys, strict=True)
        ]
        return jnp.sum(weights * jnp.tensordot(jnp.stack(features), values, 2))

    arguments = (module.values, query, keys)
    for actual, expected in zip(
        jax.jit(jax.grad(fast, (0, 1, 2)))(*arguments),
        jax.jit(jax.grad(slow, (0, 1, 2)))(*arguments),
        strict=True,
    ):
        np.testing.assert_allclose(actual, expected, atol=1e-10)


@members
def test_call_and_features_are_the_loop_over_heads_and_keys(options):
    check_values(options, n_heads=M, count=2)


@kinds
def test_gradients_are_those_of_the_loop(options):
    check_gradients(options, n_heads=M, count=2)


@pytest.mark.parametrize("kind", ["rfa", "softmax"])
@pytest.mark.usefixtures("_tiny_blocks")
def test_blocks_change_nothing(kind):
    # Sizes of their own: compiled functions are cached by shape, not by the size of a block.
    check_values(MEMBERS[kind], n_heads=3, count=3)
    check_gradients(MEMBERS[kind], n_heads=3, count=3)


@kinds
def test_the_output_is_linear_in_the_features(options):
    query, keys, module = unit(6, 2, D), unit(7, 2, N, D), attention(options, 2)
    linear = M**0.5 * module.features(query, keys) @ module.values.reshape(-1, 2)
    np.testing.assert_allclose(module(query, keys), linear, atol=1e-12)


@kinds
def test_the_draw_is_frozen_and_the_values_are_trained(options):
    module, query, keys = attention(options), unit(8, 1, D), unit(9, 1, N, D)
    gradient = jax.jit(jax.grad(lambda module: module(query, keys)[0]))(module)
    assert (gradient.draws == 0).all()
    assert gradient.mean_weights is None or (gradient.mean_weights == 0).all()
    features = module.features(query, keys).reshape(M, D + 1)
    np.testing.assert_allclose(gradient.values, M**0.5 * features, atol=1e-12)
    trained, frozen = eqx.partition(module, module.trainable)
    assert [leaf.shape for leaf in jax.tree.leaves(trained)] == [module.values.shape]
    assert frozen.values is None


@kinds
def test_masking_a_key_is_deleting_it(options):
    module, query, keys = attention(options), unit(10, 4, D), unit(11, N, D)
    mask = np.array([True, False, True])
    dirty = keys.at[1].set(jnp.nan)
    np.testing.assert_allclose(
        module.features(query, dirty, mask), module.features(query, keys[mask]), atol=1e-12
    )
    value, gradient = jax.jit(jax.value_and_grad(lambda keys: jnp.sum(module(query, keys, mask))))(
        dirty
    )
    np.testing.assert_allclose(value, jnp.sum(module(query, keys[mask])), atol=1e-12)
    assert (gradient[~mask] == 0).all()
    assert jnp.isfinite(gradient).all()


@pytest.mark.parametrize("options", [{}, {"activation": "softmax"}])
def test_every_query_may_have_its_own_mask(options):
    module, query, keys = attention(options), unit(12, 2, 3, D), unit(13, 2, N, D)
    masks = np.random.default_rng(14).random((2, 3, N)) < 0.6
    masks[:, :, 0] = True
    output = module(query, keys, masks)
    for i, j in itertools.product(range(2), range(3)):
        alone = module(query[i, j], keys[i], masks[i, j])
        np.testing.assert_allclose(output[i, j], alone, atol=1e-12)


@kinds
def test_a_query_that_may_read_nothing_gets_zero(options):
    module, query, keys = attention(options), unit(15, D), unit(16, N, D)
    nothing = np.zeros(N, bool)
    value, gradient = jax.value_and_grad(lambda query: module(query, keys, nothing))(query)
    assert value == 0
    assert (gradient == 0).all()


@kinds
def test_the_order_of_the_keys_does_not_matter(options):
    module, query, keys = attention(options), unit(17, 2, D), unit(18, 2, N, D)
    np.testing.assert_allclose(module(query, keys[:, ::-1]), module(query, keys), atol=1e-13)


@pytest.mark.parametrize("options", [{}, {"activation": "softmax"}])
def test_batches_and_queries_are_loops(options):
    module, query, keys = attention(options), unit(19, 2, 1, 5, D), unit(20, 2, 1, N, D)
    output, features = module(query, keys), module.features(query, keys)
    assert output.shape == (2, 1, 5)
    assert features.shape == (2, 1, 5, M * (D + 1))
    for i, j, k in itertools.product(range(2), range(1), range(5)):
        one = query[i, j, k], keys[i, j]
        np.testing.assert_allclose(output[i, j, k], module(*one), atol=1e-12)
        np.testing.assert_allclose(features[i, j, k], module.features(*one), atol=1e-12)
    mapped = jax.jit(jax.vmap(jax.vmap(lambda query, keys: module(query, keys))))(query, keys)
    np.testing.assert_allclose(mapped, output, atol=1e-12)


def test_a_draw_of_modules_maps():
    def output(key, query, keys):
        return RandomFeatureAttention(key, M, D).features(query, keys)

    keys = jax.random.split(jax.random.key(21), 3)
    query, tokens = unit(22, D), unit(23, N, D)
    mapped = jax.vmap(output, in_axes=(0, None, None))(keys, query, tokens)
    for key, features in zip(keys, mapped, strict=True):
        np.testing.assert_allclose(features, output(key, query, tokens), atol=1e-13)


@pytest.mark.parametrize("module", [attention({}), network()], ids=["attention", "network"])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64, jnp.bfloat16])
def test_the_precision_is_that_of_the_tokens(module, dtype):
    query, keys = unit(24, 4, D).astype(dtype), unit(25, 4, N, D).astype(dtype)
    output, features = module(query, keys), module.features(query, keys)
    assert output.dtype == features.dtype == dtype
    exact = module(query.astype(jnp.float64), keys.astype(jnp.float64))
    size = float(jnp.abs(exact).max())
    np.testing.assert_allclose(
        output.astype(jnp.float64), exact, atol=8 * size * float(jnp.finfo(dtype).eps)
    )


def test_memory_does_not_grow_with_the_number_of_heads():
    n_heads, length = 4096, 64
    module, query, keys = attention({}, n_heads=n_heads), unit(26, 8, D), unit(27, 8, length, D)
    every_weight = 8 * 8 * n_heads * length  # bytes of all weights at once, in float64

    def value(module, query, keys):
        return jnp.sum(module(query, keys) ** 2)

    for function in (value, jax.grad(value)):
        compiled = jax.jit(function).lower(module, query, keys).compile()
        analysis = compiled.memory_analysis()
        assert analysis is not None
        frozen = 8 * module.draws.size
        assert analysis.temp_size_in_bytes < every_weight / 2 + 4 * frozen


def test_mean_weights_move_the_scores_only_where_they_act():
    query, keys = unit(28, D), unit(29, N, D)
    plain, biased = attention({}), attention({"mean_weights": "identity"})
    shift = biased.preactivations(query, keys) - plain.preactivations(query, keys)
    np.testing.assert_allclose(shift, jnp.tile(keys @ query, (M, 1)), atol=1e-13)


def check_network(output_dimension, n_neurons):
    module = RandomFeatureMLP(jax.random.key(0), n_neurons, D, N, output_dimension)
    module = module.with_values(normal(1, *module.values.shape))
    query, keys = unit(30, 3, 2, D), unit(31, 3, N, D)

    def neurons(query, keys):
        vectors = jnp.stack(
            [
                jnp.concatenate([query[i, j], *keys[i], jnp.ones(1)])
                for i, j in itertools.product(range(3), range(2))
            ]
        )
        return jnp.maximum(vectors @ module.draws.T, 0.0).reshape(3, 2, -1)

    expected = neurons(query, keys)
    features = module.features(query, keys)
    np.testing.assert_allclose(features, expected * n_neurons**-0.5, atol=1e-12)
    np.testing.assert_allclose(module(query, keys), expected @ module.values, atol=1e-12)
    gradients = jax.grad(lambda q, k: jnp.sum(module(q, k) ** 2), (0, 1))(query, keys)
    loop = jax.grad(lambda q, k: jnp.sum((neurons(q, k) @ module.values) ** 2), (0, 1))(query, keys)
    for actual, reference in zip(gradients, loop, strict=True):
        np.testing.assert_allclose(actual, reference, atol=1e-10)


@pytest.mark.parametrize("output_dimension", [None, 2])
def test_network_is_its_formula(output_dimension):
    check_network(output_dimension, M)


@pytest.mark.usefixtures("_tiny_blocks")
def test_network_in_blocks_is_its_formula():
    check_network(None, n_neurons=3)


def test_network_draw_is_frozen():
    module, query, keys = network(), unit(32, D), unit(33, N, D)
    gradient = jax.grad(lambda module: module(query, keys))(module)
    assert (gradient.draws == 0).all()
    np.testing.assert_allclose(gradient.values, M**0.5 * module.features(query, keys), atol=1e-13)
    assert len(jax.tree.leaves(eqx.filter(module, module.trainable))) == 1


def test_scores_are_standard_normal_on_the_sphere():
    heads = 40_000
    direct = RandomFeatureAttention(jax.random.key(34), heads, D)
    scores = direct.preactivations(unit(35, D), unit(36, 1, D))[:, 0]
    # Mean, variance and fourth moment of N(0, 1), each within 4 standard errors.
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (4, 3, 96)):
        assert abs(jnp.mean(scores**power) - moment) <= 4 * (variance / heads) ** 0.5
    neurons = RandomFeatureMLP(jax.random.key(37), heads, D, N)
    features = neurons.features(unit(38, D), unit(39, N, D)) * heads**0.5
    # E σ(g) = 1/√(2π) and E σ(g)² = 1/2 with variance 3/2 − 1/4.
    assert abs(jnp.mean(features) - (2 * np.pi) ** -0.5) <= 4 * 0.584 / heads**0.5
    assert abs(jnp.mean(features**2) - 0.5) <= 4 * (1.25 / heads) ** 0.5


def test_scores_covary_by_the_angles_and_mean_weights_shift_them():
    """Cov = (1 + ⟨x₀, x₀'⟩)(1 + ⟨x, x'⟩)/4; W₀ = [[I, 0], [0, 0]] adds ⟨x₀, x⟩ to the mean."""
    heads, (query, other) = 40_000, unit(43, 2, D)
    keys, other_keys = unit(44, 2, 1, D)
    direct = RandomFeatureAttention(jax.random.key(45), heads, D)
    products = (direct.preactivations(query, keys) * direct.preactivations(other, other_keys))[:, 0]
    expected = (1 + query @ other) * (1 + keys[0] @ other_keys[0]) / 4
    assert abs(products.mean() - expected) <= 4 * products.std() / heads**0.5
    biased = RandomFeatureAttention(jax.random.key(46), heads, D, mean_weights="identity")
    scores = biased.preactivations(query, keys)[:, 0] - query @ keys[0]
    for each in (direct.preactivations(query, keys)[:, 0], scores):
        assert scipy.stats.kstest(np.asarray(each), "norm").pvalue >= 1e-4


def test_factored_scores_have_fourth_moment_three_plus_six_over_d():
    heads, rows = 40_000, 16
    module = RandomFeatureAttention(
        jax.random.key(40), heads, D, sampling="factored", head_dimension=rows
    )
    scores = module.preactivations(unit(41, D), unit(42, 1, D))[:, 0]
    for power, moment in ((2, 1), (4, 3 + 6 / rows)):
        sample = scores**power
        assert abs(sample.mean() - moment) <= 4 * sample.std() / heads**0.5
