"""Float32 CME attention against float64 over random contexts, answers and gradients.

Contexts of every kind that is known to hurt: tokens spread over eight decades, far from the origin,
in clusters, repeated, with an outlier, masked; ridges from 1e-8 to 1e3; values of any size. An
answer may be wrong by 1e-4 of the largest value and a gradient by 1e-3 of its largest entry, or it
is NaN. The gradients of scalars (the logarithms of the ridge and of the kernel's parameters) may
also be wrong by 1e-5 of what the loss can change by, those of tokens, per lengthscale, and of
values, per largest value, by 1e-11 of it or by the rounding of a float64 solve, 2⁻⁴⁸ times the
condition number: where they nearly vanish, float64 itself does not know their digits. The reference
is the float64 route on the same numbers; contexts where that route has no six digits either are not
judged: condition numbers above 1e11, and for RBF tokens so far apart that rounding their squared
distances counts beside the ridge.

    python benchmarks/accuracy.py --cases 40 --lengths 5 300 700 1500
"""

import argparse
import os
import sys
import warnings

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import jax.numpy as jnp
import numpy as np

from finetti.attention import ConditionalMean, KernelSmoother
from finetti.core.numerics.extremes import largest_of
from finetti.core.numerics.float64 import float64
from finetti.kernels import RBF, Linear, Matern, Polynomial

FORWARD_RTOL, GRADIENT_RTOL = 1e-4, 1e-3
KERNELS = {
    "RBF": RBF,
    "Matern 1/2": lambda lengthscale: Matern(0.5, lengthscale),
    "Matern 5/2": lambda lengthscale: Matern(2.5, lengthscale),
    "2 RBF": lambda lengthscale: 2.0 * RBF(lengthscale),
    "RBF + Linear": lambda lengthscale: RBF(lengthscale) + Linear(),
    "Polynomial": lambda lengthscale: Polynomial(2, scale=1 / lengthscale**2),
}
LEAVES = ("kernel", "ridge", "query", "keys", "values")


def draw(rng, length, d_k, d_v, kernel):
    """One context: arguments of a call, and in words what is special about it."""
    spread = 10 ** rng.uniform(-3, 5)
    keys = rng.normal(size=(length, d_k))
    shape = rng.choice(["plain", "clusters", "duplicates", "outlier", "uneven"])
    if shape == "clusters":
        centers = rng.normal(size=(5, d_k))
        keys = keys * 10 ** rng.uniform(-3, 0) + centers[rng.integers(0, 5, length)]
    if shape == "duplicates":
        keys = keys[rng.integers(0, max(1, length // 3), length)]
    if shape == "outlier":
        keys[0] *= 10 ** rng.uniform(1, 4)
    if shape == "uneven":
        keys = keys * 10 ** rng.uniform(-3, 0, size=(1, d_k))
    offset = rng.choice([0.0, 10 ** rng.uniform(0, 5)])
    keys = (spread * keys + offset * rng.normal(size=d_k)).astype(np.float32)
    query = keys[rng.integers(0, length, min(length, 2000))]
    query = (query + rng.choice([0.0, 0.1, 10.0]) * rng.normal(size=query.shape)).astype(np.float32)
    if kernel == "Polynomial":
        lengthscale = max(spread, offset)  # sixth powers of 1e5 are nobody's kernel
    else:
        lengthscale = rng.choice([1.0, spread * 10 ** rng.uniform(-1, 1)])
    values = rng.normal(size=(length, d_v))
    if rng.random() < 0.5:
        projected = keys @ rng.normal(size=(d_k, d_v)) / max(spread, lengthscale)
        values = np.sin(projected) + 0.1 * values
    values = (values * 10 ** rng.uniform(-15, 15)).astype(np.float32)
    mask = rng.random(length) < 0.8 if rng.random() < 0.5 else np.ones(length, bool)
    ridge = 10 ** rng.uniform(-8, 3)
    words = f"{shape}, spread {spread:.0e}, offset {offset:.0e}, ℓ {lengthscale:.0e}, λ {ridge:.0e}"
    return (query, keys, values, mask), float(lengthscale), float(ridge), words


@jax.jit
def both(module, query, keys, values, mask, weights):
    """The answer, and the gradients of a random linear function of it."""

    def loss(module, query, keys, values):
        mean = module(query, keys, values, mask)
        return jnp.sum(weights * mean), mean

    gradients, mean = jax.grad(loss, argnums=(0, 1, 2, 3), has_aux=True)(
        module, query, keys, values
    )
    return mean, (*jax.tree.leaves(gradients[0]), *gradients[1:])


def compare(found, wanted, size):
    """Error relative to ``size``, and whether the answer admits that it is none."""
    found, wanted = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    admitted = np.isnan(found)
    # What float32 cannot hold is not held against it.
    wanted = np.clip(wanted, -3.4e38, 3.4e38)
    error = np.where(admitted, 0.0, np.abs(found - wanted))
    return float(error.max() / max(size, 1e-33)), bool(admitted.any())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=20, help="per length, kernel and route")
    parser.add_argument("--lengths", type=int, nargs="+", default=[5, 300, 700])
    parser.add_argument("--dimensions", type=int, nargs="+", default=[1, 3, 16, 128])
    parser.add_argument("--kernels", nargs="+", default=list(KERNELS), choices=list(KERNELS))
    parser.add_argument(
        "--routes", nargs="+", default=["auto"], help="of ConditionalMean, or smoother"
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(options.seed)
    worst, failed = {}, 0
    for length in options.lengths:
        for d_k in options.dimensions:
            for kernel in options.kernels:
                for route in options.routes:
                    if route == "smoother" and kernel == "RBF + Linear":
                        continue
                    row = worst.setdefault((length, kernel, route), {})
                    for case in range(options.cases):
                        about = f"{length} keys, d_k = {d_k}, {kernel}, {route}"
                        print(f"{about}: {case + 1} of {options.cases}", file=sys.stderr)
                        bad = one(rng, length, d_k, kernel, route, row)
                        failed += len(bad)
                        for line in bad:
                            print(f"BAD {length} {d_k} {kernel} {route}: {line}", flush=True)
    gradients = ", ".join(LEAVES)
    print(f"| keys | kernel | route | answer | gradients: {gradients} | NaN | not judged |")
    print("|---|---|---|---|---|---|---|")
    for (length, kernel, route), row in worst.items():
        leaves = ", ".join(f"{row.get(name, 0):.0e}" for name in LEAVES)
        print(
            f"| {length} | {kernel} | {route} | {row.get('answer', 0):.0e} | {leaves} | "
            f"{row.get('nan', 0)} of {row.get('cases', 0)} | {row.get('ill', 0)} |"
        )
    print(f"{failed} outside the limits")
    sys.exit(bool(failed))


def in_float64(leaf):
    return jnp.asarray(leaf) if leaf.dtype == bool else jnp.asarray(leaf, jnp.float64)


def one(rng, length, d_k, kernel, route, row):
    (query, keys, values, mask), lengthscale, ridge, words = draw(rng, length, d_k, 2, kernel)
    weights = rng.normal(size=(len(query), 2)).astype(np.float32)

    def build(route):
        if route == "smoother":
            return KernelSmoother(KERNELS[kernel](lengthscale))
        return ConditionalMean(KERNELS[kernel](lengthscale), ridge=ridge, route=route)

    largest = float(jnp.max(build(route).kernel.diagonal(jnp.asarray(keys))))
    extent = np.max(np.sum(((keys - keys.mean(axis=0, dtype=float)) / lengthscale) ** 2, axis=1))
    unresolved = "RBF" in kernel and 2.0**-53 * extent > 1e-6 * min(ridge, 1.0)
    if route != "smoother" and (unresolved or length * largest > 1e11 * ridge):
        row["ill"] = row.get("ill", 0) + 1
        return []
    arguments = query, keys, values, mask, weights
    with jax.enable_x64(False):
        mean, gradients = both(build(route), *map(jnp.asarray, arguments))
        reference = build("smoother" if route == "smoother" else "cholesky")
    with float64():
        # The same numbers, parameters included: what is rounded to float32 stays so.
        exact, exact_gradients = both(*jax.tree.map(in_float64, (reference, *arguments)))
    names = (*["kernel"] * (len(gradients) - 4), "ridge", *LEAVES[2:])
    if route == "smoother":
        names = (*["kernel"] * (len(gradients) - 3), *LEAVES[2:])
    # Far from its keys a polynomial answers with more than the values' size.
    unit = max(np.abs(values[mask]).max(initial=0.0), float(np.max(np.abs(exact))))
    error, nan = compare(mean, exact, unit)
    found = [("answer", error, FORWARD_RTOL)]
    change = float(np.linalg.norm(weights.astype(float)) * unit)
    unknown = max(1e-11, 2.0**-48 * length * largest / ridge)
    for name, gradient, wanted in zip(names, gradients, exact_gradients, strict=True):
        size = float(np.max(np.abs(wanted)))
        if np.ndim(wanted) == 0:
            size = largest_of(size, 0.01 * change)
        else:
            per = unit if name == "values" else lengthscale
            size = largest_of(size, unknown / GRADIENT_RTOL * change / per)
        error, admitted = compare(gradient, wanted, size)
        nan |= admitted
        found.append((name, error, GRADIENT_RTOL))
    row["cases"] = row.get("cases", 0) + 1
    row["nan"] = row.get("nan", 0) + nan
    for name, error, _ in found:
        row[name] = largest_of(row.get(name, 0.0), error)
    return [f"{name} {error:.1e} ({words})" for name, error, limit in found if error > limit]


if __name__ == "__main__":
    main()
