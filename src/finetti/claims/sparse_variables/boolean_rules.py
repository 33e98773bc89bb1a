"""Proposition 4.7 and Lemmas B.5–B.8: exact rules by a lookup, and as printed (errata 6, 16)."""

from itertools import product
from typing import Any

import numpy as np

from finetti import boolean
from finetti.boolean.arguments import BASES
from finetti.boolean.embeddings import EMBEDDINGS, find_embedding
from finetti.boolean.embeddings.base import attention_error
from finetti.boolean.functions.base import all_bits
from finetti.boolean.network.lookup import CORNERS, SIGNS, make_lookup
from finetti.boolean.norms import lookup_norms
from finetti.boolean.printed import printed_bump
from finetti.claims.claim import Context, Control, claim
from finetti.claims.evidence import Evidence, Measurement, at_least, at_most, close, within
from finetti.claims.sparse_variables.boolean_cases import THREE, random_rule, symmetric_rule
from finetti.claims.wrong import dimmer, times
from finetti.core.numbers import largest_of
from finetti.show.card import Table


@claim(
    id="S-prop-4.7",
    title="one layer computes every sparse Boolean function",
    statement="Every s-sparse Boolean function is computed exactly by one layer with norms of "
    "order log T: by one head if it is symmetric or the input a bag of vectors, else by s heads.",
    formula=r"∀ f: \{0,1\}^T → R \text{that depends on} s \text{bits}: f = \text{one layer},  ‖W‖ "
    "= O(log T)",
    label="Proposition 4.7 (B.1)",
    controls=(Control("half of R", breaks={"finetti.boolean.compile": dimmer(0.5)}),),
)
def s_prop_4_7(context: Context) -> Evidence:
    """All 256 functions of three bits, every embedding, both bases, on all inputs; then growth."""
    error, n_inputs, too_many = 0.0, 0, 0
    for number, embedding, basis in product(range(256), EMBEDDINGS, BASES):
        rule = boolean.TruthTable(THREE, [(number >> place) & 1 for place in range(8)])
        compiled = boolean.compile(rule, 10, embedding, basis)
        error = largest_of(error, compiled.check.error64)
        n_inputs += compiled.check.n_inputs
        too_many += compiled.blocks[0].n_heads > (1 if embedding == "bag" else len(THREE))
    rows, largest = [], 0.0
    lengths = context.pick(quick=(10**2, 10**3, 10**4, 10**5), paper=(10**2, 10**4, 10**6))
    for length in lengths:
        compiled = boolean.compile(boolean.And(THREE), length, basis="random")
        norms = {norm.name: norm for norm in compiled.certificate.norms}
        query = norms["‖W_Q‖_F"]
        largest = largest_of(largest, *(norm.value / norm.bound for norm in norms.values()))
        rows.append((length, compiled.width, query.value, query.bound))
    return Evidence(
        close(f"largest error on all {n_inputs} inputs", error, 1e-9),
        at_most("networks with more heads than the proposition says", too_many, 0),
        at_most("norm / bound at any T", largest, 1 + 1e-9),
        note="Width and ‖W_Q‖ of the 3-bit AND on a random basis grow like log T.",
        tables=(Table("AND of 3 bits", ("T", "width", "‖W_Q‖_F", "bound"), tuple(rows)),),
    )


BITS = (1, 2, 3, 5, 8)


def exact_evidence(
    context: Context, claim_id: str, draw: Any, heads_per_bit: bool, bits: tuple[int, ...] = BITS
) -> Evidence:
    """Random rules of up to 8 bits: the largest error of the network, and its number of heads."""
    length = context.pick(quick=200, paper=1000)
    rng = context.generator(claim_id)
    error = single = 0.0
    too_many = n_inputs = 0
    for sparsity, embedding, basis in product(bits, EMBEDDINGS, BASES):
        compiled = boolean.compile(draw(rng, length, sparsity), length, embedding, basis)
        error = largest_of(error, compiled.check.error64)
        single = largest_of(single, compiled.check.error32)
        n_inputs += compiled.check.n_inputs
        allowed = sparsity if heads_per_bit and embedding != "bag" else 1
        too_many += compiled.blocks[0].n_heads > allowed
    return Evidence(
        close(f"largest error on {n_inputs} inputs, float64", error, 1e-9),
        at_most("networks with more heads than the lemma says", too_many, 0),
        note=f"T = {length}: all settings of the relevant bits, each with the worst outside bits. "
        f"In float32 the largest error is {single:.1g}, relative to the value itself.",
    )


@claim(
    id="S-lemma-B.5",
    title="symmetric rules: one head and a lookup on s + 1 points",
    statement="A symmetric s-sparse function is computed exactly by one head and a lookup on s + 1 "
    "points with δ = γ/4.",
    formula=r"f(b) = lookup(\frac{1}{s} Σ_{i∈I} χ_i),  δ = \frac{γ}{4}",
    controls=(Control("half of R", breaks={"finetti.boolean.compile": dimmer(0.5)}),),
)
def s_lemma_b_5(context: Context) -> Evidence:
    """Random functions of the number of ones, every embedding, both bases."""
    return exact_evidence(context, s_lemma_b_5.id, symmetric_rule, heads_per_bit=False)


@claim(
    id="S-lemma-B.6",
    title="any rule: s features and a lookup on 2^s points",
    statement="Any s-sparse function is computed exactly by s heads (one over a bag of vectors) "
    "and a lookup on 2^s points with δ = γ/4.",
    formula=r"f(b) = lookup(χ_1, …, χ_s),  δ = \frac{γ}{4}",
    controls=(
        Control(
            "half of R",
            changes={"bits": (1, 2, 3)},
            breaks={"finetti.boolean.compile": dimmer(0.5)},
        ),
    ),
)
def s_lemma_b_6(context: Context, bits: tuple[int, ...] = BITS) -> Evidence:
    """Random truth tables with real values, every embedding, both bases."""
    return exact_evidence(context, s_lemma_b_6.id, random_rule, True, bits)


@claim(
    id="S-lemma-B.7",
    title="softmax truncation",
    statement="If s of T scores are equal to R and the others at most 0, softmax is within "
    "2(T − s)/(s e^R) of the uniform distribution on the s, in ℓ1.",
    formula=r"‖softmax(θ) − \frac{1}{s} 1_I‖_1 ≤ \frac{2 (T−s)}{s e^R}",
    controls=(
        Control(
            "without the factor 2",
            breaks={"finetti.claims.sparse_variables.boolean_rules.attention_error": times(0.5)},
        ),
    ),
)
def s_lemma_b_7(context: Context) -> Evidence:
    """The ℓ1 distance to the uniform mixture over its bound, for random and for tight scores."""
    rng = context.generator(s_lemma_b_7.id)
    largest = tightest = 0.0
    for _ in range(context.pick(quick=2000, paper=20000)):
        length = int(rng.integers(2, 200))
        sparsity = int(rng.integers(1, length + 1))
        lead = rng.uniform(0, 12)
        scores = np.full(length, lead)
        scores[sparsity:] = -rng.exponential(rng.choice([0.0, 1.0, 5.0]), length - sparsity)
        weights = np.exp(scores - lead)
        weights /= weights.sum()
        wanted = np.where(np.arange(length) < sparsity, 1 / sparsity, 0.0)
        bound = attention_error(length, sparsity, lead)
        if bound > 0:
            ratio = float(np.abs(weights - wanted).sum()) / bound
            largest = largest_of(largest, ratio)
            if bound < 1e-3:
                tightest = largest_of(tightest, ratio)
    return Evidence(
        at_most("largest ℓ1 error over 2(T − s)/(s e^R)", largest, 1 + 1e-9),
        at_least("the same where the bound is small: it is sharp", tightest, 0.99),
    )


def _narrower(right: Any) -> Any:
    """Lookups that tolerate half of what they are asked to."""
    return lambda points, values, tolerance: right(points, values, tolerance / 2)


@claim(
    id="S-lemma-B.8",
    title="a lookup in three layers",
    statement="For points at least 4δ apart in the maximum norm a three-layer ReLU network gives "
    "f(x_i) for every x within δ of x_i; ‖W_1‖_∞ ≤ max(1, B + 2δ)/δ, ‖W_2‖_∞ ≤ max(1, d), "
    "‖w‖_∞ ≤ max|f|.",
    formula="ψ(z) = r(z+2) − r(z+1) − r(z−1) + r(z−2),  ‖x − x_i‖_∞ ≤ δ ⇒ N(x) = f(x_i)",
    controls=(
        Control(
            "δ/2", breaks={"finetti.claims.sparse_variables.boolean_rules.make_lookup": _narrower}
        ),
    ),
)
def s_lemma_b_8(context: Context) -> Evidence:
    """Outputs at points with noise up to δ, in the corners of the noise and inside, and norms."""
    rng = context.generator(s_lemma_b_8.id)
    error = ratio = 0.0
    for _ in range(context.pick(quick=60, paper=600)):
        dimension, tolerance = int(rng.integers(1, 5)), float(10 ** rng.uniform(-3, 0))
        grid = rng.integers(-4, 5, size=(40, dimension))
        points = np.unique(grid, axis=0) * (4 * tolerance)
        values = rng.normal(size=len(points))
        lookup = make_lookup(points, values, tolerance)
        for noise in (rng.uniform(-1, 1, points.shape), rng.choice([-1.0, 1.0], points.shape)):
            found = lookup(points + noise * tolerance * (1 - 1e-12))
            error = largest_of(error, float(np.abs(found - values).max()))
        radius, largest = float(np.abs(points).max()), float(np.abs(values).max())
        norms = lookup_norms(lookup, radius, tolerance, largest)
        ratio = largest_of(ratio, *(norm.value / norm.bound for norm in norms))
    return Evidence(
        close("values at points with noise δ", error, 1e-10),
        at_most("norm / bound", ratio, 1 + 1e-12),
    )


def wrong_inputs(rule: str, factor: float) -> int:
    """Inputs of all 2^10 at which the lookup with δ = γ·factor is wrong; values are ±1, so that
    every point has its unit."""
    length = 10
    reduced = boolean.simplify(boolean.parse(rule))
    signs = boolean.TruthTable(reduced.indices, 2 * reduced.table() - 1)
    compiled = boolean.compile(signs, length)
    points = find_embedding("deterministic").by_setting(all_bits(signs.sparsity))
    lookup = make_lookup(points, signs.table(), 2.0 * factor)
    outputs = lookup(compiled.tables.all_features)
    return int((np.abs(outputs - signs(all_bits(length))) > 1e-9).sum())


@claim(
    id="S-erratum-6",
    title="printed: δ = γ/8",
    statement="The head of Lemmas B.2 and B.3 errs by up to γ/4, and the lookup with δ = γ/8 is "
    "exact on it.",
    formula=r"δ = \frac{γ}{4}",
    printed=r"δ = \frac{γ}{8}",
    label="Lemmas B.5 and B.6",
    erratum="The lookup must tolerate γ/4: δ = γ/4, for which points γ = 4δ apart are far enough.",
    controls=(Control("δ = γ/6", changes={"repaired": 1 / 6}),),
)
def s_erratum_6(context: Context, repaired: float = 1 / 4) -> Evidence:
    """Wrong inputs of all 1024 at T = 10, δ = γ/8 and γ/4: one bit, and three with three heads."""

    def measured(factor: float) -> tuple[Measurement, ...]:
        return (
            at_most("wrong inputs, s = 1", wrong_inputs("x2", factor), 0),
            at_most("wrong inputs, three heads", wrong_inputs("x3 & (x7 | ~x9)", factor), 0),
        )

    return Evidence(
        *measured(1 / 8),
        derived=measured(repaired),
        note="One-head rules of s ≥ 2 bits and the bag happen to pass with γ/8 too.",
    )


@claim(
    id="S-erratum-16",
    title="printed: the bump of the lookup, and its bound on W_1",
    statement="The bump ψ = r(z+2) − r(z+1) − r(2−z) + r(1−z) of Lemma B.8, z = (x − a)/δ, is 1 "
    "within δ of its point, and ‖W_1‖_∞ ≤ max(1, B)/δ.",
    formula=r"ψ(z) = r(z+2) − r(z+1) − r(z−1) + r(z−2),  ‖W_1‖_∞ ≤ \frac{max(1, B+2δ)}{δ}",
    printed=r"ψ(z) = r(z+2) − r(z+1) − r(2−z) + r(1−z),  ‖W_1‖_∞ ≤ \frac{max(1, B)}{δ}",
    label="Lemma B.8",
    erratum="Both of its steps are 1 there, and it is 0. ψ = r(z+2) − r(z+1) − r(z−1) + r(z−2) is "
    "1. The bound is max(1, B + 2δ)/δ.",
    controls=(
        Control(
            "corners at ¾ of their places",
            breaks={
                "finetti.claims.sparse_variables.boolean_rules.CORNERS": lambda right: 0.75 * right
            },
        ),
    ),
)
def s_erratum_16(context: Context) -> Evidence:
    """Both bumps within δ of their point, and the entries of W_1 and its biases against a bound."""
    near = np.linspace(-1, 1, 21)  # z = (x − a)/δ
    printed, bump = printed_bump(near), np.maximum(near[:, None] + CORNERS, 0) @ SIGNS
    points, tolerance = np.array([[-1.0], [1.0]]), 0.5
    lookup = make_lookup(points, np.ones(2), tolerance)
    largest = largest_of(np.abs(lookup.inner).max(), np.abs(lookup.inner_bias).max())
    radius = np.abs(points).max()
    derived = largest_of(1.0, radius + 2 * tolerance) / tolerance
    return Evidence(
        within("largest bump within δ of its point", np.abs(printed).max(), 1.0, 1.0),
        at_most("‖W_1‖_∞ against max(1, B)/δ", largest, largest_of(1.0, radius) / tolerance),
        derived=(
            close("printed bump within δ of its point, which is 0", np.abs(printed).max(), 1e-12),
            within("least bump within δ of its point", bump.min(), 1 - 1e-12, 1.0),
            within("largest bump within δ of its point", bump.max(), 1.0, 1 + 1e-12),
            at_most("‖W_1‖_∞ against max(1, B + 2δ)/δ", largest, derived),
        ),
    )
