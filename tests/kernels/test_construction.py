"""How kernels are made, what they store and what they refuse."""

import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti.core.errors import InputError, UnsupportedError
from finetti.kernels import (
    RBF,
    Exponential,
    Kernel,
    Linear,
    Matern,
    Polynomial,
    Product,
    Scaled,
    Sum,
)

XS = jnp.ones((6, 3))


def test_importing_the_room_does_not_import_jax():
    code = "import sys, finetti.kernels; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf"), [1.0, 0.0]])
@pytest.mark.parametrize("cls", [RBF, Matern, Exponential])
def test_refuses_parameters_that_are_not_positive(cls, value):
    name = "scale" if cls is Exponential else "lengthscale"
    with pytest.raises(InputError, match=f"`{name}` argument of {cls.__name__} must be a finite"):
        cls(**{name: value})


def test_refuses_parameters_of_the_wrong_shape():
    with pytest.raises(
        InputError, match="`lengthscale` argument of RBF must be a finite number > 0 or an"
    ):
        RBF(np.ones((2, 2)))
    with pytest.raises(
        InputError, match=r"`scale` argument of Exponential must be a finite number > 0\."
    ):
        Exponential(np.ones(2))
    with pytest.raises(InputError, match="`lengthscale` argument of Matern must have one entry"):
        Matern(lengthscale=[1.0, 2.0]).gram(XS)
    with pytest.raises(InputError, match="`lengthscale` argument of RBF must have one entry"):
        RBF([1.0, 2.0]).random_features(jax.random.key(0), 8, 3)


@pytest.mark.parametrize("degree", [0, -1, 2.5, True, None])
def test_polynomial_refuses_degrees_that_are_not_counts(degree):
    with pytest.raises(
        InputError, match="`degree` argument of Polynomial must be a whole number ≥ 1"
    ):
        Polynomial(degree)


def test_polynomial_refuses_a_negative_bias():
    with pytest.raises(InputError, match="`bias` argument of Polynomial must be a finite"):
        Polynomial(2, bias=-0.1)


@pytest.mark.parametrize("nu", [0, -0.5, float("nan"), 50.5, float("inf")])
def test_matern_refuses_smoothness_out_of_range(nu):
    with pytest.raises(InputError, match=r"`nu` argument of Matern must be (a finite|at most 50)"):
        Matern(nu)


def test_refusals_name_what_to_use_instead():
    key = jax.random.key(0)
    with pytest.raises(UnsupportedError, match=r"Linear has no random features\. Use `features`"):
        Linear().random_features(key, 8, 3)
    with pytest.raises(UnsupportedError, match=r'Matern has no positive .* method="fourier"'):
        Matern().random_features(key, 8, 3, method="positive")
    with pytest.raises(UnsupportedError, match="Sum has no finite feature map"):
        (Linear() + RBF()).features(XS)


def test_parameters_are_learned_through_their_logarithm():
    np.testing.assert_allclose(RBF(0.3).log_lengthscale, np.log(0.3), rtol=1e-15)
    np.testing.assert_allclose(RBF(0.3).lengthscale, 0.3, rtol=1e-15)
    np.testing.assert_allclose(Exponential(0.3).scale, 0.3, rtol=1e-15)
    np.testing.assert_allclose((0.3 * Linear()).constant, 0.3, rtol=1e-15)
    polynomial = Polynomial(2, scale=0.3, bias=0.4)
    np.testing.assert_allclose([polynomial.scale, polynomial.bias], [0.3, 0.4], rtol=1e-15)
    assert len(jax.tree.leaves(polynomial)) == 2
    assert len(jax.tree.leaves(Polynomial(2, bias=0))) == 1
    assert Polynomial(2, bias=0).bias == 0
    assert not jax.tree.leaves(Linear())


@pytest.mark.parametrize("kernel", [RBF(), Exponential(), Polynomial(2), Matern(), 2 * RBF()])
def test_leaves_are_strongly_typed_floats(kernel):
    for leaf in jax.tree.leaves(kernel):
        assert leaf.dtype == jnp.float64
        assert not leaf.weak_type


def test_parameters_can_be_traced():
    def value(parameter):
        kernel = parameter * RBF(parameter) + Polynomial(2, bias=parameter)
        return kernel.gram(XS).sum()

    parameter = jnp.array(0.8)
    np.testing.assert_allclose(jax.jit(value)(parameter), value(parameter), rtol=1e-14)
    ahead, behind = value(parameter + 1e-5), value(parameter - 1e-5)
    np.testing.assert_allclose(jax.grad(value)(parameter), (ahead - behind) / 2e-5, rtol=1e-8)


def test_operators():
    left, right = RBF(), Linear()
    assert isinstance(left + right, Sum)
    assert isinstance(left * right, Product)
    for constant in (2, 2.0, np.float64(2.0), np.array(2.0), jnp.array(2.0)):
        for scaled in (constant * left, left * constant):
            assert isinstance(scaled, Scaled)
            np.testing.assert_allclose(scaled.constant, 2.0, rtol=1e-15)
    with pytest.raises(InputError, match="`constant` argument of Scaled must be a finite number"):
        -1.0 * left
    with pytest.raises(TypeError, match="unsupported operand"):
        left + 1.0
    with pytest.raises(TypeError, match="unsupported operand"):
        left * None


@pytest.mark.parametrize("make", [lambda: Sum(RBF(), 2.0), lambda: Product(1.0, RBF())])
def test_pairs_refuse_what_is_no_kernel(make):
    with pytest.raises(InputError, match="must be a Kernel"):
        make()


def test_a_kernel_without_a_formula_is_abstract():
    with pytest.raises(TypeError, match="abstract"):
        Kernel()


def test_kernels_pass_through_jit_and_tree_equality():
    kernel = 2.0 * RBF([1.0, 2.0]) + Polynomial(3) * Matern(2.5)
    copy = eqx.filter_jit(lambda kernel: kernel)(kernel)
    assert eqx.tree_equal(kernel, copy)
    assert not eqx.tree_equal(Matern(0.5), Matern(1.5))


@pytest.mark.parametrize(("degree", "d", "bias"), [(1, 4, 0), (2, 3, 1.0), (3, 2, 0), (4, 5, 1.0)])
def test_number_of_monomials(degree, d, bias):
    kernel = Polynomial(degree, bias=bias)
    assert kernel.features(jnp.ones((1, d))).shape[1] == kernel.feature_dimension(d)
