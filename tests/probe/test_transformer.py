"""The paper's learner: what it is, and what it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti.core.errors import InputError
from finetti.probe.learners.paper_transformer import TransformerLearner, is_linear_weight
from finetti.probe.learners.textbook_transformer import (
    LayerMasks,
    Masks,
    draw_masks,
    textbook_logits,
)

LENGTH, SAMPLES = 6, 5
BITS = np.random.default_rng(0).integers(2, size=(SAMPLES, LENGTH)).astype(np.uint8)


def small(**changes):
    return TransformerLearner(**{"width": 8, "n_heads": 4} | changes)


def drawn(learner):
    """Parameters far from the start, so that nothing is nearly zero or nearly linear."""
    start = jax.eval_shape(lambda: learner.init(jax.random.key(0), LENGTH))
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda a: jnp.asarray(rng.normal(scale=0.5, size=a.shape)), start)


@pytest.fixture
def loose():
    """Optax multiplies integers by floats."""
    with jax.numpy_dtype_promotion("standard"):
        yield


def test_the_defaults_are_the_papers():
    learner = TransformerLearner()
    params = learner.init(jax.random.key(0), 400)
    assert params["positions"].shape == (401, 64)
    assert params["tokens"].shape == (3, 64)
    assert params["layers"][0]["expand"]["weight"].shape == (64, 256)
    assert params["head"]["weight"].shape == (64, 2)
    settings = learner.settings()
    assert settings["n_heads"] == 16
    assert settings["n_layers"] == 1
    assert settings["clip_norm"] == 1
    assert settings["iterations"] == 1000
    assert learner.rates == (0.1, 0.1, 0.1)
    flat = jax.tree_util.tree_leaves_with_path(params)
    for path, value in flat:
        name = path[-1].key
        if name in ("bias", "gain"):
            assert np.all(np.asarray(value) == (name == "gain"))
        else:  # standard deviation of n normal numbers, five standard errors
            assert abs(np.std(value) / 0.02 - 1) < 5 * (2 * value.size) ** -0.5


def test_against_minGPT_in_pytorch():
    torch = pytest.importorskip("torch")
    learner = small(n_layers=2)
    params = drawn(learner)
    (m, t), d, heads = BITS.shape, 8, 4

    def tensor(a):
        return torch.tensor(np.asarray(a))

    def linear(x, p):
        return torch.nn.functional.linear(x, tensor(p["weight"]).T, tensor(p["bias"]))

    def norm(x, p):
        return torch.nn.functional.layer_norm(x, (d,), tensor(p["gain"]), tensor(p["bias"]), 1e-5)

    tokens = torch.tensor(np.concatenate([BITS.astype(int), np.full((m, 1), 2)], axis=1))
    x = tensor(params["tokens"])[tokens] + tensor(params["positions"])
    for p in params["layers"]:
        u = norm(x, p["attention_norm"])
        q, k, v = (
            linear(u, p[name]).view(m, t + 1, heads, d // heads).transpose(1, 2)
            for name in ("query", "key", "value")
        )
        read = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + linear(read.transpose(1, 2).reshape(m, t + 1, d), p["output"])
        hidden = torch.nn.functional.gelu(linear(norm(x, p["mlp_norm"]), p["expand"]))
        x = x + linear(hidden, p["contract"])
    wanted = norm(x[:, -1], params["final_norm"]) @ tensor(params["head"]["weight"])
    assert np.allclose(jax.jit(learner.apply)(params, BITS), wanted, rtol=0, atol=1e-10)


@pytest.mark.usefixtures("loose")
def test_one_step_is_adamw_with_decay_on_linear_weights_only():
    learner = small(learning_rate=0.1, weight_decay=0.3, clip_norm=None)
    params = drawn(learner)
    gradient = jax.tree.map(jnp.ones_like, params)
    optimizer = learner.optimizer()
    state = optimizer.init(params)
    updates, _ = jax.jit(optimizer.update)(gradient, state, params)
    linear = is_linear_weight(params)

    def check(p, step, decays):  # Adam's first step is the sign of the gradient
        assert np.allclose(step, -0.1 * (1 + 0.3 * decays * p), rtol=0, atol=1e-6)

    jax.tree.map(check, params, updates, linear)
    assert sum(jax.tree.leaves(linear)) == 7  # query, key, value, output, expand, contract, head


@pytest.mark.usefixtures("loose")
def test_the_clip_is_by_global_norm():
    params = {"weight": jnp.array([1.0, 1.0])}
    steps = {}
    for clip in (None, 1.0):
        optimizer = small(clip_norm=clip).optimizer()
        state = optimizer.init(params)
        for size in (3.0, 0.3):  # Adam forgets a common factor, not a change of it
            gradient = {"weight": jnp.array([size, 0.0])}
            step, state = optimizer.update(gradient, state, params)
        steps[clip] = step["weight"][0]
    clipped = [1.0, 0.3]
    mean = (0.9 * 0.1 * clipped[0] + 0.1 * clipped[1]) / (1 - 0.9**2)
    square = (0.999 * 0.001 * clipped[0] ** 2 + 0.001 * clipped[1] ** 2) / (1 - 0.999**2)
    assert steps[1.0] == pytest.approx(-1e-3 * (mean / square**0.5 + 1e-4), rel=1e-4)
    assert abs(steps[None] / steps[1.0] - 1) > 0.01


def test_dropout_needs_a_key_and_knows_no_number_of_samples():
    learner = small(n_layers=2)
    params = drawn(learner)
    draw = jax.jit(lambda bits: draw_masks(jax.random.key(0), learner.rates, bits, params, 4))
    masks = draw(BITS)
    assert masks.layers[0].attention.shape == (SAMPLES, LENGTH + 1, LENGTH + 1, 4)
    assert masks.layers[1].attention.shape == (SAMPLES, 1, LENGTH + 1, 4)
    more = draw(np.tile(BITS, (3, 1)))
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b[:SAMPLES]), masks, more)
    apply = jax.jit(learner.apply)
    first, second = (apply(params, BITS, jax.random.key(k)) for k in (0, 1))
    assert not np.allclose(first, second)
    assert not np.allclose(first, apply(params, BITS, None))


@pytest.mark.parametrize("n_layers", [1, 2])
def test_positions_can_be_renamed(n_layers):
    learner = small(n_layers=n_layers)
    params = drawn(learner)
    order = np.random.default_rng(1).permutation(LENGTH)
    renamed = params | {"positions": params["positions"][np.append(order, LENGTH)]}
    apply = jax.jit(learner.apply)
    answers = apply(params, BITS), apply(renamed, BITS[:, order])
    assert np.allclose(*answers, rtol=0, atol=1e-10)


@pytest.mark.parametrize("n_layers", [1, 2])
def test_the_attention_that_is_shown_is_the_one_that_is_read_with(n_layers):
    """Weights times 1/((T+1)·weights) are uniform, as are those of a network whose query is 0."""
    learner = small(n_layers=n_layers)
    params = drawn(learner)
    weights = learner.attention(params, BITS)
    assert weights.shape == (SAMPLES, 4, LENGTH + 1)
    np.testing.assert_allclose(weights.sum(axis=2), 1, rtol=1e-12)
    assert float(jnp.ptp(weights, axis=2).min()) > 1e-3
    *before, last = params["layers"]
    undo = LayerMasks(attention=1 / ((LENGTH + 1) * weights.swapaxes(1, 2)[:, None]))
    masks = Masks(None, (*[LayerMasks()] * len(before), undo))
    blind = {**last, "query": jax.tree.map(jnp.zeros_like, last["query"])}
    np.testing.assert_allclose(
        textbook_logits(params, BITS, masks, 4),
        textbook_logits({**params, "layers": [*before, blind]}, BITS, None, 4),
        rtol=1e-10,
    )


def test_presets_and_rates():
    assert small(dropout="none").rates == (0, 0, 0)
    assert small(dropout="attention").rates == (0, 0.1, 0.1)
    assert small(dropout="none", attention_dropout=0.3).rates == (0, 0.3, 0)
    same = small(dropout="none"), small(embedding_dropout=0, attention_dropout=0, output_dropout=0)
    assert same[0].settings() == same[1].settings()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_heads": 3}, "divisor of width = 8"),
        ({"n_layers": 0}, "n_layers"),
        ({"dropout": "all"}, "paper"),
        ({"output_dropout": 1.0}, "output_dropout"),
        ({"clip_norm": 0.0}, "clip_norm"),
        ({"learning_rate": -1.0}, "learning_rate"),
        ({"weight_decay": -1.0}, "weight_decay"),
    ],
)
def test_refusals(changes, message):
    with pytest.raises(InputError, match=message):
        small(**changes)
