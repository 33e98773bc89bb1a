"""Float32 data of every kind that is known to hurt, within the limits of `benchmarks/accuracy.py`.

An answer within 1e-4 of the largest value, a gradient within 1e-3 of its largest entry; or NaN. The
reference is the float64 route on the same numbers, which equals that of JAX.
"""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from finetti.core.numerics.extremes import largest_of

torch = pytest.importorskip("torch")

from finetti.torch import RBF, Linear, Matern, Polynomial, cme_attention  # noqa: E402

FILE = Path(__file__).parents[2] / "benchmarks" / "accuracy.py"
spec = importlib.util.spec_from_file_location("accuracy_sweep", FILE)
assert spec is not None
assert spec.loader is not None
sweep = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sweep)

KERNELS = {
    "RBF": lambda n: RBF(n),
    "Matern 1/2": lambda n: Matern(0.5, n),
    "Matern 5/2": lambda n: Matern(2.5, n),
    "2 RBF": lambda n: torch.tensor(2.0).to(n) * RBF(n),
    "RBF + Linear": lambda n: RBF(n) + Linear(),
    "Polynomial": lambda n: Polynomial(2, 1 / n**2, torch.tensor(1.0).to(n)),
}


def read(arguments, lengthscale, ridge, kernel, dtype, learned=True):
    """The answer, and gradients by query, keys and values; where they are ``learned``, by the
    kernel's parameters and log ridge too."""
    query, keys, values, mask, weights = arguments
    # The same numbers, parameters included: what is rounded to float32 stays so.
    made = KERNELS[kernel](torch.tensor(lengthscale, dtype=torch.float32)).to(dtype)
    made.requires_grad_(learned)
    log_ridge = torch.tensor(np.log(ridge), dtype=torch.float32).to(dtype).requires_grad_(learned)
    tokens = [torch.tensor(each).to(dtype).requires_grad_() for each in (query, keys, values)]
    options = {"attn_mask": torch.tensor(mask), "kernel": made, "scale": 1.0}
    mean = cme_attention(*tokens, ridge=log_ridge.exp(), **options)
    mean.backward(torch.tensor(weights).to(dtype))
    named = [(name, t.grad) for name, t in zip(("query", "keys", "values"), tokens, strict=True)]
    if learned:
        named += [("kernel", parameter.grad) for parameter in made.parameters()]
        named += [("ridge", log_ridge.grad)]
    return mean.detach(), named


def errors(rng, length, d_k, kernel, learned=True):
    """What is wrong by more than the limits; None where float64 has no six digits either."""
    (query, keys, values, mask), lengthscale, ridge, words = sweep.draw(rng, length, d_k, 2, kernel)
    # A loss that is a sum has a gradient for values that is large and smooth.
    weights = rng.normal(size=(len(query), 2)) if rng.random() < 0.5 else np.ones((len(query), 2))
    weights = weights.astype(np.float32)
    extent = np.max(np.sum(((keys - keys.mean(axis=0, dtype=float)) / lengthscale) ** 2, axis=1))
    unresolved = "RBF" in kernel and 2.0**-53 * extent > 1e-6 * min(ridge, 1.0)
    made = KERNELS[kernel](torch.tensor(lengthscale))
    largest = made.diagonal(torch.tensor(keys)).max().item()
    if unresolved or length * largest > 1e11 * ridge:
        return None
    arguments = query, keys, values, mask, weights
    mean, gradients = read(arguments, lengthscale, ridge, kernel, torch.float32, learned)
    exact, wanted = read(arguments, lengthscale, ridge, kernel, torch.float64, learned)
    unit = max(np.abs(values[mask]).max(initial=0.0), float(exact.abs().max()))
    error, _ = sweep.compare(mean, exact, unit)
    found = [("answer", error, sweep.FORWARD_RTOL)]
    change = float(np.linalg.norm(weights.astype(float)) * unit)
    unknown = max(1e-11, 2.0**-48 * length * largest / ridge)
    for (name, gradient), (_, other) in zip(gradients, wanted, strict=True):
        size = float(other.abs().max())
        if other.ndim == 0:
            size = largest_of(size, 0.01 * change)
        else:
            per = unit if name == "values" else lengthscale
            size = largest_of(size, unknown / sweep.GRADIENT_RTOL * change / per)
        found.append((name, sweep.compare(gradient, other, size)[0], sweep.GRADIENT_RTOL))
    return [f"{name} {error:.1e} ({words})" for name, error, limit in found if not error <= limit]


@pytest.mark.parametrize("learned", [True, False])
@pytest.mark.parametrize("kernel", KERNELS)
def test_right_or_it_says_so(kernel, learned):
    rng = np.random.default_rng(7)
    cases = [errors(rng, length, d_k, kernel, learned) for length in (5, 300) for d_k in (1, 3, 16)]
    judged = [case for case in cases if case is not None]
    assert len(judged) >= 2
    assert [line for case in judged for line in case] == []


@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0])
def test_a_learned_lengthscale_and_ridge_of_a_summed_loss(scale):
    """The gradient is a thousandth of the sums that it is the difference of."""

    def gradients(dtype):
        generator = torch.Generator().manual_seed(0)
        key = torch.randn(300, 3, generator=generator).to(dtype)
        value = torch.sin(key[:, :2].float()).to(dtype)
        kernel = RBF(torch.tensor(scale)).to(dtype)
        ridge = torch.tensor(0.1, dtype=torch.float32).to(dtype).requires_grad_()
        cme_attention(key, key, value, kernel=kernel, ridge=ridge, scale=1.0).sum().backward()
        return kernel.log_lengthscale.grad, ridge.grad

    for found, wanted in zip(gradients(torch.float32), gradients(torch.float64), strict=True):
        assert (found - wanted).abs() <= 1e-3 * wanted.abs()
