"""A cohort is as many single runs: slots, refills, early ends and failures change no number."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from finetti.core.errors import InputError
from finetti.training import CheckResult, DivergedError, Member, adamw, train, train_cohort

OPTIMIZER = adamw(0.05, decay=0.1, clip=1.0)
N_MEMBERS, ROWS = 5, 6


def loss(params, batch, key):
    """Regression with noise on the inputs, as dropout would be; rows of weight 0 do not count."""
    x, y, weights = batch
    noisy = x * jax.random.bernoulli(key, 0.7, x.shape).astype(x.dtype)
    hidden = jnp.tanh(noisy @ params["in"] + params["bias"][None])
    return jnp.sum(weights * (hidden @ params["out"] - y) ** 2) / jnp.sum(weights)


def member(number, explode=False):
    keys = jax.random.split(jax.random.key(number), 4)
    x = jax.random.normal(keys[0], (ROWS, 3)) * (1e300 if explode else 1.0)
    y, weights = x[:, 0] * x[:, 1], jnp.arange(ROWS) < ROWS - number % 2
    shapes = {"in": (3, 4), "bias": (4,), "out": (4,)}
    params = {name: jax.random.normal(keys[1], shape) for name, shape in shapes.items()}
    return Member(params, (x, y, weights.astype(float)), keys[2], tag=number)


def update(rule, *arguments):
    with jax.numpy_dtype_promotion("standard"):
        return rule.update(*arguments)


def single(number, iterations):
    """The reference: one step after another, in Python."""
    params, data, key, _ = member(number)
    state, losses = OPTIMIZER.init(params), []
    step = jax.jit(jax.value_and_grad(loss))
    for index in range(iterations):
        value, gradient = step(params, data, jax.random.fold_in(key, index))
        updates, state = update(OPTIMIZER, gradient, state, params)
        params = optax.apply_updates(params, updates)
        losses.append(value)
    return params, np.array(losses)


def check(tag, params, step, losses):
    """Member 1 is done early, so that its slot changes hands in the middle of the others."""
    assert losses.shape == (4,)
    return CheckResult(
        done=(tag == 1 and step == 4) or (tag == 2 and step == 8), record=(tag, step)
    )


@pytest.fixture(scope="module")
def references():
    lengths = [12, 4, 8, 12, 12]
    return [single(number, length) for number, length in enumerate(lengths)]


@pytest.mark.parametrize("slots", [1, 3])
def test_a_cohort_is_as_many_single_runs(slots, references):
    rules = {"optimizer": OPTIMIZER, "iterations": 12, "check_every": 4}
    made = (member(number) for number in range(N_MEMBERS))
    runs = train_cohort(loss, made, slots=slots, check=check, **rules)
    assert [run.tag for run in runs] == list(range(N_MEMBERS))
    for run, (params, losses) in zip(runs, references, strict=True):
        np.testing.assert_allclose(run.losses, losses, rtol=1e-10)
        assert run.steps == len(losses)
        assert run.records == [(run.tag, step) for step in range(4, run.steps + 1, 4)]
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9), run.params, params)


def test_a_loss_that_is_not_finite_ends_its_member_alone(references):
    made = [member(0), member(1, explode=True), member(2), member(3)]
    rules = {"optimizer": OPTIMIZER, "iterations": 8, "check_every": 4}
    runs = train_cohort(loss, made, slots=3, **rules)
    assert [run.failure is None for run in runs] == [True, False, True, True]
    assert "step 1 is inf" in runs[1].failure or "step 1 is nan" in runs[1].failure
    for number in (0, 2, 3):
        np.testing.assert_allclose(runs[number].losses, references[number][1][:8], rtol=1e-10)
    with pytest.raises(DivergedError, match="Lower the learning rate") as caught:
        train(loss, *made[1][:2], key=made[1].key, **rules)
    assert caught.value.run.steps == 4


def test_streams_draw_from_the_key_and_the_step():
    def stream(data, key, step):
        return data + jax.random.normal(key) + step.astype(float)

    def distance(params, batch, key):
        return (params - batch) ** 2 + 0 * jax.random.uniform(key)

    rules = {"iterations": 6, "check_every": 3, "stream": stream}
    key = jax.random.key(7)
    run = train(distance, jnp.zeros(()), jnp.ones(()), key=key, optimizer=optax.sgd(0.0), **rules)
    batches = [
        stream(jnp.ones(()), jax.random.split(jax.random.fold_in(key, step))[1], jnp.array(step))
        for step in range(6)
    ]
    np.testing.assert_allclose(run.losses, np.square(batches), rtol=1e-12)


def test_equinox_modules_train_and_keep_what_is_no_real_number():
    class Model(eqx.Module):
        linear: eqx.nn.Linear
        chosen: jax.Array  # whole numbers are not trained
        name: str

        def __call__(self, x):
            return self.linear(x[self.chosen])

    model = Model(eqx.nn.Linear(2, 1, key=jax.random.key(0)), jnp.array([0, 2]), "mine")
    x = jax.random.normal(jax.random.key(1), (20, 3))
    y = x[:, 2] - x[:, 0]

    def error(model, batch, key):
        return jnp.mean((jax.vmap(model)(batch[0])[:, 0] - batch[1]) ** 2)

    options = {"optimizer": adamw(0.05, decay=1e-5), "iterations": 300, "check_every": 100}
    run = train(error, model, (x, y), key=jax.random.key(2), **options)
    assert run.losses[-1] < 1e-3 < run.losses[0]
    assert (run.params.name, run.params.chosen.tolist()) == ("mine", [0, 2])
    np.testing.assert_allclose(run.params.linear.weight, [[-1.0, 1.0]], atol=0.02)


def test_decay_is_decoupled_and_only_on_the_chosen_leaves():
    params = {"weight": jnp.full((2, 2), 3.0), "bias": jnp.full(2, 3.0)}
    rule = adamw(0.1, decay=0.5)
    zero = jax.tree.map(jnp.zeros_like, params)
    updates, _ = update(rule, zero, rule.init(params), params)
    np.testing.assert_allclose(updates["weight"], -0.1 * 0.5 * 3.0)
    np.testing.assert_allclose(updates["bias"], 0.0)


def test_the_clip_is_of_the_norm_of_all_leaves():
    params, rule = {"a": jnp.zeros(1), "b": jnp.zeros(1)}, adamw(1.0, clip=1.0, epsilon=1e3)
    gradient = {"a": jnp.array([30.0]), "b": jnp.array([40.0])}
    updates, _ = update(rule, gradient, rule.init(params), params)
    # With a large epsilon Adam's step is −g/epsilon: the clipped gradient is seen.
    np.testing.assert_allclose([updates["a"][0], updates["b"][0]], [-0.6e-3, -0.8e-3], rtol=2e-3)
    with pytest.raises(InputError, match="`clip` argument"):
        adamw(clip=0.0)


def test_wrong_arguments_are_named():
    rules = {"optimizer": OPTIMIZER, "iterations": 8, "check_every": 4}
    with pytest.raises(InputError, match=r"multiple of `check_every` \(4\)"):
        train_cohort(loss, [member(0)], **{**rules, "iterations": 10})
    with pytest.raises(InputError, match=r"an Optax optimizer, .* Got 'adam' instead"):
        train(loss, jnp.zeros(2), key=jax.random.key(0), optimizer="adam")
    with pytest.raises(InputError, match="`slots` argument"):
        train_cohort(loss, [member(0)], slots=0, **rules)
    larger = member(1)._replace(data=tuple(jnp.concatenate([a, a]) for a in member(1).data))
    with pytest.raises(InputError, match="same shapes"):
        train_cohort(loss, [member(0), larger], slots=1, **rules)
    with pytest.raises(InputError, match="arrays of real numbers"):
        train_cohort(loss, [Member({"a": jnp.arange(3)}, None, jax.random.key(0))], **rules)
    assert train_cohort(loss, [], **rules) == []
