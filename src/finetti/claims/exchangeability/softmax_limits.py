"""Proposition 4.2: what softmax attention tends to."""

from typing import Any

import numpy as np
import scipy

from finetti import attention, core, kernels
from finetti.claims.claim import Context, Control, claim
from finetti.claims.evidence import Evidence, at_most, close, trend, within
from finetti.claims.exchangeability.instances import larger_c1
from finetti.claims.perturbations import normalized, unit_vectors
from finetti.claims.wrong import times
from finetti.core.numbers import largest_of

SPHERE_DIMENSION = 5


def read_sphere(
    context: Context, names: Any, query: np.ndarray, harmonic: np.ndarray, length: int, repeats: int
) -> np.ndarray:
    """Softmax attention over L uniform keys with E[V|K=k] = (Mk, (aᵀk)² − 1/5), noise ±0.3."""
    outputs = []
    for trial in range(repeats):
        rng = context.generator(*names, trial)
        keys = unit_vectors(rng, length, SPHERE_DIMENSION)
        values = np.hstack([keys @ harmonic.T, quadratic(keys)])
        values = values + 0.3 * rng.choice([-1.0, 1.0], size=values.shape)
        outputs.append(attention.Softmax()(query, keys, values))
    return np.array(outputs)


def quadratic(tokens: np.ndarray) -> np.ndarray:
    """The degree-2 harmonic k₁² − 1/d."""
    return tokens[..., :1] ** 2 - 1 / SPHERE_DIMENSION


@claim(
    id="E-eq-4.10",
    title="softmax attention is a kernel smoother",
    statement="attn_SM is the Nadaraya–Watson smoother of the exponential kernel, and on the unit "
    "sphere that of the RBF kernel.",
    formula=r"attn_{SM}(q,K,V) = \frac{Σ_ℓ e^{q^⊤ k_ℓ} v_ℓ}{Σ_ℓ e^{q^⊤ k_ℓ}}",
    label="(4.9), (4.10)",
    controls=(Control("scores divided by √d", changes={"scale": 0.5}),),
)
def e_eq_4_10(context: Context, scale: float = 1.0) -> Evidence:
    """Softmax against the exponential smoother, JAX's own attention, and RBF on the sphere."""
    import jax

    smoother = sphere = library = 0.0
    for trial in range(context.pick(quick=10, paper=100)):
        rng = context.generator(e_eq_4_10.id, trial)
        query, (keys, values) = rng.normal(size=(6, 4)), rng.normal(size=(2, 20, 4))
        output = np.asarray(attention.Softmax(scale)(query, keys, values))
        exponential = attention.KernelSmoother(kernels.Exponential())
        smoother = largest_of(smoother, np.abs(output - exponential(query, keys, values)).max())
        heads = [tokens[None, :, None] for tokens in (query, keys, values)]
        theirs = jax.nn.dot_product_attention(heads[0], heads[1], heads[2], scale=1.0)
        library = largest_of(library, np.abs(output - np.asarray(theirs)[0, :, 0]).max())
        units, rbf = (normalized(query), normalized(keys)), attention.KernelSmoother(kernels.RBF())
        gap = exponential(*units, values) - rbf(*units, values)
        sphere = largest_of(sphere, np.abs(gap).max())
    return Evidence(
        close("softmax − exponential kernel smoother", smoother, 1e-12),
        # JAX normalizes its scores in float32 whatever the input.
        close("softmax − jax.nn.dot_product_attention at scale 1", library, 2e-6),
        close("on the unit sphere: exponential − RBF smoother", sphere, 1e-12),
    )


def density_mean_error(context: Context, claim_id: str, dimension: int, constant: float) -> float:
    """Largest ‖attn_SM − C ∫ v p̂(v|q) dv‖ with C = ``constant``, tokens on the unit sphere."""
    nodes, weights = attention.sphere_rule(dimension, degree=40)
    smoother = attention.KernelSmoother(kernels.Exponential())
    worst = 0.0
    for trial in range(context.pick(quick=5, paper=50)):
        rng = context.generator(claim_id, dimension, trial)
        query, keys = unit_vectors(rng, 4, 3), unit_vectors(rng, 15, 3)
        values = unit_vectors(rng, 15, dimension)
        density = np.asarray(smoother.density(nodes, query, keys, values))
        mean = (density * weights) @ nodes
        output = np.asarray(attention.Softmax()(query, keys, values))
        worst = largest_of(worst, np.abs(output - constant * mean).max())
    return worst


@claim(
    id="E-prop-4.2",
    title="softmax attention is the mean of a kernel density",
    statement="On the unit sphere attn_SM(q, K, V) = C ∫ v p̂(v|q) dv with p̂ of (4.11) and "
    "C = 1/C₁.",
    formula=r"attn_{SM}(q,K,V) = \frac{1}{C_1} ∫_{S^{d−1}} v \hat{p}(v|q) dv",
    controls=(
        Control("C₁ 1 % too large", breaks={"finetti.attention.sphere_constants": larger_c1}),
    ),
)
def e_prop_4_2(context: Context) -> Evidence:
    """∫ v p̂(v|q) dv by quadrature on spheres in 2, 3 and 4 dimensions."""
    errors = {
        d: density_mean_error(context, e_prop_4_2.id, d, 1 / attention.sphere_constants(d).c1)
        for d in (2, 3, 4)
    }
    name = "d = {}: attn_SM − (1/C₁) ∫ v p̂(v|q) dv"
    return Evidence(*(close(name.format(d), error, 1e-10) for d, error in errors.items()))


@claim(
    id="E-prop-4.2-limit",
    title="softmax attention tends to Nadaraya–Watson",
    statement="As L grows softmax attention tends to E[V·K(K,q)] / E[K(K,q)] at the rate L^(-1/2); "
    "with keys uniform on the sphere and E[V|K=k] = Mk that is A_d(1)·Mq.",
    formula=r"attn_{SM}(q,K,V) → \frac{E[V K(K,q)]}{E[K(K,q)]},  E[V|K=k] = M k ⇒ A_d(1) M q",
    false_alarm=5e-4,
    controls=(
        Control("A_d 5 % too large", breaks={"finetti.attention.mean_resultant": times(1.05)}),
    ),
)
def e_prop_4_2_limit(context: Context) -> Evidence:
    """Distance to the Nadaraya–Watson limit against L, and the shrinkage factor at L = 20 000."""
    rng = context.generator(e_prop_4_2_limit.id)
    harmonic = np.linalg.qr(rng.normal(size=(SPHERE_DIMENSION, SPHERE_DIMENSION)))[0]
    query = unit_vectors(rng, 50, SPHERE_DIMENSION)
    target = query @ harmonic.T
    shrinkage = attention.mean_resultant(SPHERE_DIMENSION)
    repeats = context.pick(quick=40, paper=200)
    lengths = [100, 400, 1600, 6400, 25600]
    means, errors, records = [], [], []
    for length in lengths:
        names = e_prop_4_2_limit.id, length
        outputs = read_sphere(context, names, query, harmonic, length, repeats)
        misses = outputs[..., :SPHERE_DIMENSION] - shrinkage * target
        sample = np.linalg.norm(misses, axis=2).mean(axis=1)
        means.append(sample.mean())
        errors.append(sample.std(ddof=1) / np.sqrt(repeats))
        records.append({"length": length, "distance": float(sample.mean())})
    slope = core.power_law_slope(lengths, means, errors)
    names, repeats = (e_prop_4_2_limit.id, "ratio"), context.pick(quick=20, paper=100)
    outputs = read_sphere(context, names, query, harmonic, 20_000, repeats)
    linear = outputs[..., :SPHERE_DIMENSION]
    ratios = [np.sum(each * target) / np.sum(target**2) for each in linear]
    low, high = shrinkage - 0.002, shrinkage + 0.002
    ratio, spread = np.mean(ratios), np.std(ratios, ddof=1) / np.sqrt(len(ratios))
    axes = {"length": "context length L", "distance": "mean distance over queries"}
    chart = trend(
        records, axes, "Softmax attention approaches the Nadaraya–Watson limit", log_y=True
    )
    return Evidence(
        within("slope in L of the distance to the limit", slope.value, -0.55, -0.45),
        within("attention over E[V|K=q], linear E[V|K]", ratio, low, high),
        note=f"A₅(1) = {shrinkage:.5f}; the ratio's standard error is {spread:.5f}.",
        charts=(chart,),
    )


@claim(
    id="E-erratum-4",
    title="printed: the constant is 1/(C₀C₁)",
    statement="attn_SM(q, K, V) = C ∫ v p̂(v|q) dv with p̂ of (4.11) and C = 1/(C₀C₁).",
    formula=r"C = \frac{1}{C_1}",
    printed=r"C = \frac{1}{C_0 C_1}",
    label="Proposition 4.2",
    erratum="With (4.11) as printed C = 1/C₁; with p̂ normalized to a density C = C₀/C₁. The "
    "printed constant fits only if C₀ denotes the normalizer 1/∫K.",
    controls=(
        Control("C₁ 1 % too large", breaks={"finetti.attention.sphere_constants": larger_c1}),
    ),
)
def e_erratum_4(context: Context) -> Evidence:
    """The identity of Proposition 4.2 with the printed constant 1/(C₀C₁), and with 1/C₁."""
    constants = attention.sphere_constants(3)
    printed, derived = (
        density_mean_error(context, e_erratum_4.id, 3, 1 / constant)
        for constant in (constants.c0 * constants.c1, constants.c1)
    )
    return Evidence(
        close("d = 3: attn_SM − (1/(C₀C₁)) ∫ v p̂(v|q) dv", printed, 1e-10),
        derived=(close("d = 3: attn_SM − (1/C₁) ∫ v p̂(v|q) dv", derived, 1e-10),),
        note="A density-normalized value kernel needs C₀/C₁.",
    )


@claim(
    id="E-erratum-4-limit",
    title="printed: softmax attention tends to C·E[V|K=q]",
    statement="As L grows, attn_SM(q, K, V) tends to C·E[V|K=q] with one absolute constant C.",
    formula=r"attn_{SM}(q,K,V) → \frac{E[V K(K,q)]}{E[K(K,q)]}",
    printed="attn_{SM}(q,K,V) → C · E[V|K=q]",
    label="Proposition 4.2",
    erratum="At a fixed bandwidth p̂ keeps its smoothing bias. The limit is Nadaraya–Watson, which "
    "shrinks each harmonic degree of E[V|K] by its own factor (Funk–Hecke).",
    false_alarm=1e-6,
    controls=(Control("the factors of a sphere in 6 dimensions", changes={"dimension": 6}),),
)
def e_erratum_4_limit(context: Context, dimension: int = SPHERE_DIMENSION) -> Evidence:
    """The ratio of attention to E[V|K=q] for a linear and a quadratic part of E[V|K]."""
    rng = context.generator(e_erratum_4_limit.id)
    harmonic = np.linalg.qr(rng.normal(size=(SPHERE_DIMENSION, SPHERE_DIMENSION)))[0]
    query = unit_vectors(rng, 200, SPHERE_DIMENSION)
    truth = np.hstack([query @ harmonic.T, quadratic(query)])
    names, repeats = (e_erratum_4_limit.id,), context.pick(quick=10, paper=100)
    output = read_sphere(context, names, query, harmonic, 20_000, repeats).mean(axis=0)
    parts = (slice(0, SPHERE_DIMENSION), slice(SPHERE_DIMENSION, None))
    linear, second = (
        float(np.sum(output[:, part] * truth[:, part]) / np.sum(truth[:, part] ** 2))
        for part in parts
    )
    # Funk–Hecke: degree k shrinks by I_{d/2−1+k}(1)/I_{d/2−1}(1).
    bessel = scipy.special.iv(dimension / 2 - 1 + np.arange(3), 1.0)
    factors = bessel[1:] / bessel[0]
    # Both measured spreads are at most 0.0004: five of them.
    return Evidence(
        at_most("difference of the two ratios", abs(linear - second), 0.1),
        derived=(
            close("ratio of the linear part − I_{5/2}(1)/I_{3/2}(1)", linear - factors[0], 0.002),
            close(
                "ratio of the quadratic part − I_{7/2}(1)/I_{3/2}(1)", second - factors[1], 0.002
            ),
        ),
        note=f"Ratio {linear:.3f} for the linear part, {second:.3f} for the quadratic one.",
    )
