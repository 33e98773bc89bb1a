"""(4.10), Lemma B.2 and Proposition 4.2: what softmax attention is, and what it tends to."""

from functools import cache
from typing import Any

import numpy as np

from finetti import attention, core, kernels, latent
from finetti.claims.claim import DERIVED, Claim, Context, Control, Erratum, claim
from finetti.claims.evidence import Evidence, at_most, trend, within
from finetti.claims.measures import Agreement, normalized, slope_of_means, unit_vectors

DIMENSION = 5  # of the keys


def _smoothers(query: Any, keys: Any, values: Any) -> dict[str, Any]:
    exponential = attention.KernelSmoother(kernels.Exponential())
    units = normalized(query), normalized(keys), values
    return {
        "softmax − exponential kernel smoother": (
            attention.Softmax()(query, keys, values),
            exponential(query, keys, values),
        ),
        "on the unit sphere: exponential − RBF smoother": (
            exponential(*units),
            attention.KernelSmoother(kernels.RBF())(*units),
        ),
    }


e_eq_4_10 = Claim(
    id="E-eq-4.10",
    title="softmax attention is a kernel smoother",
    statement="Softmax attention is the Nadaraya–Watson smoother of the exponential kernel, and on "
    "the unit sphere that of the RBF kernel.",
    formula=r"attn_{SM}(q,K,V) = \frac{Σ_ℓ e^{q^⊤ k_ℓ} v_ℓ}{Σ_ℓ e^{q^⊤ k_ℓ}}",
    label="(4.9), (4.10)",
    measure=Agreement(
        _smoothers,
        draw=lambda rng: tuple(rng.normal(size=(count, 4)) for count in (6, 20, 20)),
        tolerance=1e-12,
        sides="softmax attention, the exponential smoother, and RBF on the sphere",
    ),
)


def _sphere_integrals(*directions: np.ndarray) -> dict[str, Any]:
    """C_0, C_1 and ∫ a exp(aᵀb) da for a direction b in 2, 3 and 4 dimensions."""
    found = {}
    for direction in directions:
        nodes, weights = core.sphere_rule(len(direction), degree=40)
        kernel = weights * np.exp(nodes @ direction)
        c0, c1 = core.sphere_constants(len(direction))
        name = f"d = {len(direction)}"
        found[f"{name}: C₀, quadrature and Bessel"] = kernel.sum(), c0
        found[f"{name}: C₁, quadrature and Bessel"] = kernel @ nodes @ direction, c1
        found[f"{name}: ∫ a exp(aᵀb) da and C₁b"] = kernel @ nodes, c1 * direction
    return found


e_lemma_b_2 = Claim(
    id="E-lemma-B.2",
    title="the exponential kernel reproduces directions",
    statement="The integral of a·exp(aᵀb) over the unit sphere points along b; both constants are "
    "modified Bessel functions.",
    formula="∫_{S^{d−1}} a e^{a^⊤ b} da = C_1 b,  C_0 = ∫_{S^{d−1}} e^{a^⊤ b} da = (2π)^{d/2} "
    "I_{d/2−1}(1),  C_1 = (2π)^{d/2} I_{d/2}(1)",
    measure=Agreement(
        _sphere_integrals,
        draw=lambda rng: tuple(unit_vectors(rng, dimension) for dimension in (2, 3, 4)),
        tolerance=1e-10,
        sides="integrals over the sphere by quadrature, and their Bessel functions",
        trials=(1, 10),
    ),
)


def _draw_units(rng: np.random.Generator) -> tuple:
    values = [unit_vectors(rng, 15, dimension) for dimension in (2, 3, 4)]
    return unit_vectors(rng, 4, 3), unit_vectors(rng, 15, 3), values


def _density_means(query: Any, keys: Any, several: Any, form: str = DERIVED) -> dict[str, Any]:
    """Softmax attention, and a constant times ∫ v p̂(v|q) dv by quadrature."""
    found, smoother = {}, attention.KernelSmoother(kernels.Exponential())
    for values in several:
        dimension = values.shape[1]
        nodes, weights = core.sphere_rule(dimension, degree=40)
        c0, c1 = core.sphere_constants(dimension)
        constant, name = (1 / c1, "1/C₁") if form == DERIVED else (1 / (c0 * c1), "1/(C₀C₁)")
        density = np.asarray(smoother.density(nodes, query, keys, values))
        found[f"d = {dimension}: attn_SM − ({name}) ∫ v p̂(v|q) dv"] = (
            attention.Softmax()(query, keys, values),
            constant * (density * weights) @ nodes,
        )
    return found


e_prop_4_2 = Claim(
    id="E-prop-4.2",
    title="softmax attention is the mean of a kernel density",
    statement="On the unit sphere softmax attention is a constant times the mean of the kernel "
    "density (4.11) of the values.",
    formula=r"attn_{SM}(q,K,V) = \frac{1}{C_1} ∫_{S^{d−1}} v \hat{p}(v|q) dv",
    erratum=Erratum(
        4,
        title="printed: the constant is 1/(C₀C₁)",
        formula=r"C = \frac{1}{C_1}",
        printed=r"C = \frac{1}{C_0 C_1}",
        why="With (4.11) as printed C = 1/C₁; with p̂ normalized to a density C = C₀/C₁. The "
        "printed constant fits only if C₀ denotes the normalizer 1/∫K.",
    ),
    measure=Agreement(
        _density_means,
        draw=_draw_units,
        tolerance=1e-10,
        sides="attention and the mean of the density by quadrature on spheres in 2 to 4 dimensions",
        trials=(5, 50),
    ),
)


@cache
def _sphere(context: Context) -> tuple[latent.SphereWorld, np.ndarray]:
    """The world, and 50 queries."""
    rng = context.draws()
    rotation = latent.random_rotations(rng, 1, DIMENSION)
    world = latent.SphereWorld(rotation, concentration=100.0, harmonics="mixed")
    return world, unit_vectors(rng, 50, DIMENSION)


@cache
def _readings(context: Context, name: str | int, length: int, repeats: int) -> np.ndarray:
    """Softmax attention over contexts of the world, (repeats, queries, d_r); all forms share it."""
    world, query = _sphere(context)
    found = []
    for trial in range(repeats):
        tokens = world.sample(context.draws(name, trial), 1, length).tokens
        found.append(np.asarray(attention.Softmax()(query, tokens.keys[0], tokens.values[0])))
    return np.array(found)


@claim(
    id="E-prop-4.2-limit",
    title="softmax attention tends to Nadaraya–Watson",
    statement="As L grows softmax attention tends to the Nadaraya–Watson smoother of the "
    "distribution, at the rate L^(-1/2); with uniform keys that shrinks the part of E[V|K] of "
    "harmonic degree j by its own factor h_j.",
    formula=r"attn_{SM}(q,K,V) → \frac{E[V K(K,q)]}{E[K(K,q)]} = Σ_j h_j m_j(q),  E[V|K=·] = Σ_j "
    r"m_j,  h_j = \frac{I_{d/2−1+j}(1)}{I_{d/2−1}(1)}",
    false_alarm=5e-4,
    controls=(Control("the factors of a sphere in 6 dimensions", changes={"dimension": 6}),),
    erratum=Erratum(
        "4-limit",
        title="printed: softmax attention tends to C·E[V|K=q]",
        formula=r"attn_{SM}(q,K,V) → \frac{E[V K(K,q)]}{E[K(K,q)]}",
        printed="attn_{SM}(q,K,V) → C · E[V|K=q]",
        label="Proposition 4.2",
        why="At a fixed bandwidth p̂ keeps its smoothing bias. The limit is Nadaraya–Watson, which "
        "shrinks each harmonic degree of E[V|K] by its own factor (Funk–Hecke).",
    ),
)
def e_prop_4_2_limit(
    context: Context, form: str = "derived", dimension: int = DIMENSION
) -> Evidence:
    """Distance to the Nadaraya–Watson limit against L, and both shrinkages at L = 20 000.

    Keys are uniform on a sphere (`latent.SphereWorld`), E[V|K] has harmonic degrees 1 and 2.
    """
    world, query = _sphere(context)
    atoms = np.zeros(len(query), int)
    truth, limit = world.conditional_mean(atoms, query), world.smoother_limit(atoms, query)
    outputs = _readings(context, "ratio", 20_000, context.pick(quick=20, paper=100))
    found = []
    for part in (slice(0, DIMENSION), slice(DIMENSION, None)):
        target = truth[:, part]
        found.append([np.sum(each[:, part] * target) / np.sum(target**2) for each in outputs])
    linear, second = (float(np.mean(each)) for each in found)
    factors = np.cumprod([core.mean_resultant(dimension + 2 * j) for j in range(2)])
    shrinkages = [
        within(f"attention over E[V|K=q], {name} part", ratio, factor - 0.002, factor + 0.002)
        for name, ratio, factor in zip(
            ("linear", "quadratic"), (linear, second), factors.tolist(), strict=True
        )
    ]
    if form == "printed":
        difference = at_most("difference of the two shrinkages", abs(linear - second), 0.1)
        return Evidence(difference, derived=shrinkages)
    lengths, repeats = [100, 400, 1600, 6400, 25600], context.pick(quick=40, paper=200)
    samples, records = [], []
    for length in lengths:
        outputs = _readings(context, length, length, repeats)
        sample = np.linalg.norm(outputs - limit, axis=2).mean(axis=1)
        samples.append(sample)
        records.append({"length": length, "distance": float(sample.mean())})
    slope = slope_of_means(lengths, samples)
    axes = {"length": "context length L", "distance": "mean distance over queries"}
    title = "Softmax attention approaches the Nadaraya–Watson limit"
    spreads = [np.std(each, ddof=1) / np.sqrt(len(each)) for each in found]
    return Evidence(
        within("slope in L of the distance to the limit", slope, -0.55, -0.45),
        *shrinkages,
        note=f"h₁ = {factors[0]:.5f}, h₂ = {factors[1]:.5f}; the standard errors of the ratios are "
        f"{spreads[0]:.5f} and {spreads[1]:.5f}.",
        charts=(trend(records, axes, title, log_y=True),),
    )
