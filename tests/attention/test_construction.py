"""Modules refuse what they cannot be, by name."""

import jax
import jax.numpy as jnp
import pytest

from finetti.attention import (
    ConditionalMean,
    DeltaRule,
    KernelSmoother,
    LocalLinear,
    Softmax,
    choose_ridge,
    effective_dimension,
    fit_kernel,
    kernel_attention,
)
from finetti.core.errors import InputError, UnsupportedError
from finetti.kernels import RBF, Linear, Polynomial

NAN, INFINITY = float("nan"), float("inf")


@pytest.mark.parametrize("ridge", [0.0, -1.0, NAN, INFINITY, jnp.array(-0.1), "0.1", [0.1, 0.2]])
@pytest.mark.parametrize("option", ["ridge", "ridge_per_token"])
def test_ridge_must_be_positive(option, ridge):
    with pytest.raises(InputError, match=f"`{option}` argument of ConditionalMean"):
        ConditionalMean(RBF(), **{option: ridge})


@pytest.mark.parametrize(("option", "end", "words"), [("step", 2.0, "2"), ("decay", 1.5, "1]")])
def test_steps_and_decay_of_the_delta_rule_are_numbers_between_their_ends(option, end, words):
    for wrong in (0.0, -0.5, end, NAN, [0.5, 0.6]):
        with pytest.raises(InputError, match=rf"`{option}` .* in \(0, {words}"):
            DeltaRule(**{option: wrong})
    assert 0 < float(getattr(DeltaRule(**{option: 0.9}), option)) < end


def test_only_one_ridge():
    with pytest.raises(InputError, match=r"`ridge` .* `ridge_per_token`.* not both"):
        ConditionalMean(RBF(), ridge=0.1, ridge_per_token=0.1)


def test_a_line_has_one_ridge():
    with pytest.raises(InputError, match=r"`ridge` argument of LocalLinear .* Got shape \(2,\)"):
        LocalLinear(RBF(), ridge=[0.01, 100.0])


@pytest.mark.parametrize("scale", [0.0, -2.0, NAN, INFINITY, "a", [1.0, 2.0]])
def test_scale_must_be_positive(scale):
    with pytest.raises(InputError, match="`scale` argument of Softmax"):
        Softmax(scale)


@pytest.mark.parametrize("kernel", [Linear(), Polynomial(3), RBF() + Linear()])
def test_smoothers_need_a_kernel_of_one_sign(kernel):
    with pytest.raises(UnsupportedError, match="both signs"):
        KernelSmoother(kernel)
    with pytest.raises(UnsupportedError, match="both signs"):
        kernel_attention(*jnp.ones((3, 1, 2, 1, 3)), kernel=kernel)


@pytest.mark.parametrize("make", [KernelSmoother, ConditionalMean])
@pytest.mark.parametrize("kernel", ["rbf", RBF])
def test_kernel_must_be_a_kernel(make, kernel):
    with pytest.raises(InputError, match="`kernel` argument"):
        make(kernel)


@pytest.mark.parametrize("kernel", ["rbf", RBF])
def test_functions_ask_for_a_kernel_too(kernel):
    keys, values = jnp.ones((3, 1)), jnp.ones((3, 1))
    calls = (
        lambda: kernel_attention(*jnp.ones((3, 1, 2, 1, 3)), kernel=kernel),
        lambda: choose_ridge(keys, values, kernel=kernel),
        lambda: fit_kernel(keys, values, kernel=kernel),
        lambda: effective_dimension(keys, 0.1, kernel=kernel),
        lambda: KernelSmoother(RBF()).density(keys, keys, keys, values, value_kernel=kernel),
    )
    for call in calls:
        with pytest.raises(InputError, match=r"`(value_)?kernel` argument of .* must be a Kernel"):
            call()


def test_jit_of_a_module_says_what_to_do():
    with pytest.raises(TypeError, match=r"equinox.filter_jit\(attention\), or jax.jit\(lambda"):
        jax.jit(ConditionalMean())(jnp.ones(1), jnp.ones((2, 1)), jnp.ones((2, 1)))
    assert hash(Softmax()) == hash(Softmax())


def test_defaults_and_leaves():
    module = ConditionalMean()
    assert float(module.ridge) == pytest.approx(0.1)
    assert not module.per_token
    assert len(jax.tree.leaves(module)) == 2  # the lengthscale and the ridge can be trained
    assert jax.tree.leaves(Softmax()) == []
