"""Primal, dual and conjugate gradients are three roads to one answer; the plan tells which."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti.attention import ConditionalMean, cme_attention, context_batch
from finetti.attention.cme import conjugate_gradients as iterative
from finetti.attention.cme import dense_system, gram_products
from finetti.attention.cme.routes import Route
from finetti.attention.decoding import factor_cache
from finetti.core.errors import InputError
from finetti.core.linalg.block_cg import conjugate_gradients
from finetti.core.linalg.positive_definite import diagonal_floor
from finetti.kernels import RBF, Exponential, Linear, Matern, Polynomial


@pytest.fixture
def tokens():
    rng = np.random.default_rng(0)
    return [
        jnp.asarray(rng.normal(size=(size, width))) for size, width in ((5, 2), (40, 2), (40, 3))
    ]


@pytest.fixture
def mask():
    return jnp.arange(40) % 3 != 1


SUM = 0.5 * Linear() + Polynomial(3)


# Any two of the three in all their combinations.
@pytest.mark.parametrize(
    ("kernel", "masked", "per_token"),
    [
        (Linear(), False, False),
        (Linear(), True, True),
        (Polynomial(2), False, True),
        (Polynomial(2), True, False),
        (SUM, False, False),
        (SUM, True, True),
    ],
)
def test_primal_is_dual(tokens, mask, kernel, masked, per_token):
    ridge = {"ridge_per_token": 0.05} if per_token else {"ridge": 0.3}
    mask = mask if masked else None
    dual, primal = (ConditionalMean(kernel, **ridge, route=r) for r in ("cholesky", "primal"))
    for one, other in zip(
        primal.posterior(*tokens, mask, predictive=True),
        dual.posterior(*tokens, mask, predictive=True),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, atol=1e-10, rtol=1e-10)
    np.testing.assert_allclose(primal(*tokens, mask), dual(*tokens, mask), atol=1e-10)
    np.testing.assert_allclose(
        primal.weights(*tokens[:2], mask), dual.weights(*tokens[:2], mask), atol=1e-10
    )


@pytest.mark.parametrize(
    ("kernel", "masked"),
    # A mask is in the noise and the products, whatever the kernel.
    [(RBF(), False), (RBF(), True), (Matern(1.5), True), (Linear(), False), (Polynomial(2), True)],
)
def test_conjugate_gradients_are_the_factorization(tokens, mask, kernel, masked):
    mask = mask if masked else None
    modules = [
        ConditionalMean(kernel, ridge=0.2, route=r) for r in ("conjugate_gradients", "cholesky")
    ]

    def loss(module, tokens):
        return jnp.sum(jnp.sin(module(*tokens, mask)))

    read = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))
    results = [read(module, tokens) for module in modules]
    for one, other in zip(*map(jax.tree.leaves, results), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-8, rtol=1e-8)


def test_masked_keys_leave_gradients_as_accurate_as_without_them(monkeypatch, recompiled):
    """Their part of the adjoint solution, K(k, q)ȳ/λ, is far larger than the rest, and iterations
    would stop where they are accurate beside that: off by 6e-7 here, and by 3 % elsewhere."""
    monkeypatch.setattr(iterative, "RANK_64", 4)  # or there would be one iteration
    rng = np.random.default_rng(0)
    keys = rng.normal(size=(12, 4))[rng.integers(0, 12, size=60)]
    query, values, weights = (rng.normal(size=size) for size in ((10, 4), (60, 2), (10, 2)))
    mask = np.arange(60) % 5 > 0

    def gradients(route):
        def loss(keys, values):
            module = ConditionalMean(RBF(8.0), ridge=1e-6, route=route)
            return jnp.sum(weights * module(query, keys, values, mask))

        return jax.jit(jax.grad(loss, argnums=(0, 1)))(keys, values)

    for one, other in zip(*map(gradients, ("conjugate_gradients", "cholesky")), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-8 * np.abs(other).max())


@pytest.mark.parametrize("kernel", [RBF(), Polynomial(2)])
def test_one_floor_for_every_route(tokens, kernel):
    keys, ridge = tokens[1], jnp.asarray(1e-30)
    noise = gram_products.key_noise(kernel, ridge, keys)
    np.testing.assert_array_equal(noise, diagonal_floor(40, 2) * kernel.diagonal(keys))
    system = dense_system.build(kernel, keys, None, ridge)
    np.testing.assert_array_equal(jnp.diagonal(system.matrix), kernel.diagonal(keys) + noise)
    module = ConditionalMean(kernel, ridge=ridge)
    np.testing.assert_array_equal(factor_cache._noise(module, kernel.diagonal(keys), 40, 2), noise)
    # Forty copies of a key: their mean, but for the floor.
    kernel_routes = ["primal"] if isinstance(kernel, Polynomial) else []
    copies = jnp.broadcast_to(keys[:1], keys.shape)
    for route in ("cholesky", *kernel_routes):
        answer = ConditionalMean(kernel, ridge=1e-30, route=route)(keys[0], copies, tokens[2])
        np.testing.assert_allclose(answer, tokens[2].mean(axis=0), atol=0.01)


def test_blocks_do_not_change_the_product(monkeypatch, tokens):
    vectors = tokens[2]

    def loss(kernel, rows, keys, vectors):
        return jnp.sum(jnp.sin(gram_products.gram_product(kernel, rows, keys, vectors)))

    def plain(kernel, rows, keys, vectors):
        return jnp.sum(jnp.sin(kernel.gram(rows, keys) @ vectors))

    arguments = (Matern(2.5), tokens[1][:37], tokens[1], vectors)
    wanted = jax.value_and_grad(plain, argnums=(0, 1, 2, 3))(*arguments)
    for entries in (2**21, 500):  # 37 rows of 40: one block, or three and a part
        monkeypatch.setattr(gram_products, "BLOCK_ENTRIES", entries)
        found = jax.value_and_grad(loss, argnums=(0, 1, 2, 3))(*arguments)
        for one, other in zip(*map(jax.tree.leaves, (found, wanted)), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-11)


def test_nystrom_of_full_rank_is_exact(tokens):
    keys = tokens[1]
    noise = jnp.linspace(0.1, 0.2, 40)
    vectors = tokens[2]
    solved = iterative.nystrom(gram_products.KeySystem(Matern(0.5), keys, noise, None), 40).apply(
        vectors
    )
    product = Matern(0.5).gram(keys) @ solved + noise[:, None] * solved
    np.testing.assert_allclose(product, vectors, atol=0.05)  # but for its nugget, 1 % of the noise


def test_the_preconditioner_saves_iterations():
    rng = np.random.default_rng(1)
    keys = jnp.asarray(rng.normal(size=(300, 2)))
    values = jnp.asarray(rng.normal(size=(300, 1)))
    matrix = RBF().gram(keys) + 1e-3 * jnp.eye(300)
    system = gram_products.KeySystem(RBF(), keys, jnp.full(300, 1e-3), None)
    nystrom = jax.jit(iterative.nystrom, static_argnums=1)(system, 300)
    plain, preconditioned = (
        conjugate_gradients(lambda x: matrix @ x, values, apply, jnp.asarray(1e-3), 1e-8)[1]
        for apply in (lambda residual: residual, nystrom.apply)
    )
    assert 3 * int(preconditioned.iterations) < int(plain.iterations)
    assert float(jnp.max(preconditioned.relative_error)) <= 1e-8


def test_float32_conjugate_gradients_reach_float32():
    rng = np.random.default_rng(2)
    tokens = [jnp.asarray(rng.normal(size=(500, width)), jnp.float32) for width in (4, 4, 2)]
    with jax.enable_x64(False):
        fast = ConditionalMean(RBF(), ridge=0.1, route="conjugate_gradients")(*tokens)
        exact = ConditionalMean(RBF(), ridge=0.1, route="cholesky")(*tokens)
    assert fast.dtype == jnp.float32
    # Rounding in products with coefficients of size |v|/ridge: eps · sum |coefficient| ≈ 1e-4.
    np.testing.assert_allclose(fast, exact, atol=1e-4)


class TestPlan:
    def test_says_which_and_why(self):
        long, short = (20_000, 4), (500, 4)
        plan = ConditionalMean(RBF()).plan
        assert plan(short, short, short).route == "mixed"
        assert plan(short, short, short, dtype=jnp.float64).route == "cholesky"
        assert plan((255, 4), (255, 4), (255, 4)).route == "cholesky"
        assert plan(short, short, short, output="posterior").route == "cholesky"
        with pytest.raises(InputError, match="`output` argument of ConditionalMean"):
            plan(short, short, short, output="variance")
        assert plan(long, long, long).route == "conjugate_gradients"
        middle = (9000, 4)
        assert plan(middle, middle, middle).route == "mixed"
        assert plan(middle, middle, middle, dtype=jnp.float64).route == "cholesky"
        assert plan(long, long, long, is_causal=True).route == "cholesky"
        assert plan(long, long, long, per_query_mask=True).route == "cholesky"
        assert plan(long, long, long, output="posterior").route == "cholesky"
        assert ConditionalMean(Exponential()).plan(long, long, long).route == "cholesky"
        assert ConditionalMean(Linear()).plan(short, short, short).route == "primal"
        assert ConditionalMean(Linear()).plan((9, 4), (3, 4), (3, 1)).route == "cholesky"
        assert "linear in the length" in ConditionalMean(Linear()).plan(short, short, short).reason

    @pytest.mark.parametrize(
        ("kernel", "route", "reason"),
        [
            (RBF(), "primal", "finite feature map"),
            (Exponential(), "conjugate_gradients", "bounded growth"),
            (RBF(), "mixed", "data are float64"),
        ],
    )
    def test_refuses_what_cannot_answer(self, tokens, kernel, route, reason):
        with pytest.raises(InputError, match=reason):
            ConditionalMean(kernel, route=route)(*tokens)
        with pytest.raises(InputError, match="route"):
            ConditionalMean(kernel, route="magic")

    def test_mean_only_routes_refuse_the_rest(self, tokens, mask):
        module = ConditionalMean(RBF(), route="conjugate_gradients")
        with pytest.raises(InputError, match="mean only"):
            module.posterior(*tokens)
        with pytest.raises(InputError, match="mask per query"):
            module(*tokens, jnp.broadcast_to(mask, (5, 40)))


def test_many_contexts_run_in_groups(monkeypatch, recompiled):
    rng = np.random.default_rng(3)
    tokens = [jnp.asarray(rng.normal(size=(7, 6, width))) for width in (2, 2, 1)]
    module = ConditionalMean(RBF(), ridge=0.1)
    together = module(*tokens)
    monkeypatch.setattr(Route, "max_entries", 2 * 36)  # two contexts at a time, then one
    context_batch._program.cache_clear()
    np.testing.assert_allclose(module(*tokens), together, atol=1e-12)


def test_bfloat16_in_safe_solve_inside():
    rng = np.random.default_rng(4)
    tokens = [jnp.asarray(rng.normal(size=(1, 64, 2, 8)), jnp.bfloat16) for _ in range(3)]
    out = cme_attention(*tokens, ridge=1e-3)
    assert out.dtype == jnp.bfloat16
    exact = cme_attention(*(t.astype(jnp.float64) for t in tokens), ridge=1e-3)
    np.testing.assert_allclose(
        np.asarray(out, np.float64), exact, atol=0.01 * float(jnp.abs(exact).max())
    )


def test_the_default_route_for_long_contexts_at_a_small_ridge():
    """Too small for float32: float64 iterations answer. V = (K + λI)α says what: K(q, ·)α."""
    rng = np.random.default_rng(0)
    keys, query = (np.float32(rng.normal(size=(count, 1))) for count in (16_500, 20))
    few, alpha = keys[:5], 1e3 * rng.normal(size=(5, 1))
    values = np.asarray(RBF().gram(keys, few), float) @ alpha
    values[:5] += 1e-5 * alpha
    attention = ConditionalMean(RBF(), ridge=1e-5)
    assert attention.plan(query.shape, keys.shape, values.shape).route == "conjugate_gradients"
    # Tests are compiled for a quick compilation, which is no way to evaluate 10⁹ kernel entries.
    optimized = {"xla_backend_optimization_level": 3, "xla_cpu_use_fusion_emitters": True}
    read = jax.jit(lambda *tokens: attention(*tokens), compiler_options=optimized)
    found = read(query, keys, np.float32(values))
    exact = np.asarray(RBF().gram(query, few), float) @ alpha
    np.testing.assert_allclose(found, exact, atol=1e-4 * np.abs(values).max())
