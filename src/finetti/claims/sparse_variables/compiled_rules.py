"""Proposition 4.7 and Lemmas B.5–B.8: exact rules by a lookup, and as printed (errata 6, 16)."""

from collections.abc import Iterable
from itertools import product
from typing import Any

import numpy as np

from finetti import boolean
from finetti.boolean.compiler.compiler_options import BASES
from finetti.boolean.embeddings import EMBEDDINGS, find_embedding
from finetti.boolean.embeddings.token_embedding import attention_error
from finetti.boolean.language.rule import all_bits
from finetti.boolean.network.lookup import CORNERS, SIGNS, make_lookup
from finetti.boolean.verify.norm_bounds import lookup_norms
from finetti.claims.claim import DERIVED, CheckMethod, Context, Control, Erratum, claim
from finetti.claims.evidence import Evidence, Measurement, at_least, at_most, close, within
from finetti.claims.sparse_variables.compiled_heads import (
    HALF_OF_R,
    THREE,
    all_features,
    compiled_rule,
    random_rule,
    symmetric_rule,
)
from finetti.claims.sparse_variables.printed_weights import printed_bump
from finetti.core.numerics.extremes import largest_of
from finetti.display.card import Table


@claim(
    id="S-prop-4.7",
    title="one layer computes every sparse Boolean function",
    statement="Every s-sparse Boolean function is computed exactly by one layer with norms of "
    "order log T: by one head if it is symmetric or the input a bag of vectors, else by s heads.",
    formula=r"∀ f: \{0,1\}^T → R \text{that depends on} s \text{bits}: f = \text{one layer},  ‖W‖ "
    "= O(log T)",
    label="Proposition 4.7 (B.1)",
    controls=(Control("half of R", changes={"query": 0.5, "numbers": range(0, 256, 17)}),),
)
def s_prop_4_7(
    context: Context, query: float = 1.0, numbers: Iterable[int] = range(256)
) -> Evidence:
    """All 256 functions of three bits, every embedding, both bases, on all inputs; then growth."""
    error, n_inputs, too_many = 0.0, 0, 0
    for number, embedding, basis in product(numbers, EMBEDDINGS, BASES):
        rule = boolean.TruthTable(THREE, [(number >> place) & 1 for place in range(8)])
        compiled = compiled_rule(rule, 10, embedding, basis, query=query)
        error = largest_of(error, compiled.check.error64)
        n_inputs += compiled.check.n_inputs
        too_many += compiled.network.heads_per_block[0] > (1 if embedding == "bag" else len(THREE))
    rows, largest = [], 0.0
    lengths = context.pick(quick=(10**2, 10**3, 10**4, 10**5), paper=(10**2, 10**4, 10**6))
    for length in lengths:
        compiled = compiled_rule(boolean.And(THREE), length, basis="random", query=query)
        norms = {norm.name: norm for norm in compiled.certificate.norms}
        long = norms["‖W_Q‖_F"]
        largest = largest_of(largest, *(norm.value / norm.bound for norm in norms.values()))
        rows.append((length, compiled.network.width, long.value, long.bound))
    return Evidence(
        close(f"largest error on all {n_inputs} inputs", error, 1e-9),
        at_most("networks with more heads than the proposition says", too_many, 0),
        at_most("norm / bound at any T", largest, 1 + 1e-9),
        note="Width and ‖W_Q‖ of the 3-bit AND on a random basis grow like log T.",
        tables=(Table("AND of 3 bits", ("T", "width", "‖W_Q‖_F", "bound"), tuple(rows)),),
    )


BITS = (1, 2, 3, 5, 8)


def exact_evidence(
    context: Context, draw: Any, heads_per_bit: bool, bits: tuple[int, ...], query: float
) -> Evidence:
    """Random rules of up to 8 bits: the largest error of the network, and its number of heads."""
    length = context.pick(quick=200, paper=1000)
    rng = context.draws()
    error = single = 0.0
    too_many = n_inputs = 0
    for sparsity, embedding, basis in product(bits, EMBEDDINGS, BASES):
        rule = draw(rng, length, sparsity)
        compiled = compiled_rule(rule, length, embedding, basis, query=query)
        error = largest_of(error, compiled.check.error64)
        single = largest_of(single, compiled.check.error32)
        n_inputs += compiled.check.n_inputs
        allowed = sparsity if heads_per_bit and embedding != "bag" else 1
        too_many += compiled.network.heads_per_block[0] > allowed
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
    "points.",
    formula=r"f(b) = lookup(\frac{1}{s} Σ_{i∈I} χ_i),  δ = \frac{γ}{4}",
    controls=(HALF_OF_R,),
)
def s_lemma_b_5(context: Context, query: float = 1.0) -> Evidence:
    """Random functions of the number of ones, every embedding, both bases."""
    return exact_evidence(context, symmetric_rule, False, BITS, query)


def wrong_inputs(rule: str, factor: float) -> int:
    """Inputs of all 2^10 at which the lookup with δ = γ·factor is wrong; values are ±1, so that
    every point has its unit."""
    length = 10
    reduced = boolean.simplify(boolean.parse(rule))
    signs = boolean.TruthTable(reduced.indices, 2 * reduced.table() - 1)
    compiled = compiled_rule(signs, length)
    points = find_embedding("deterministic").by_setting(all_bits(signs.sparsity))
    lookup = make_lookup(points, signs.table(), 2.0 * factor)
    outputs = lookup(all_features(compiled.network))
    return int((np.abs(outputs - signs(all_bits(length))) > 1e-9).sum())


def _lookups(share: float) -> tuple[Measurement, ...]:
    """How often a lookup with δ = ``share``·γ is wrong."""
    rules = {"s = 1": "x2", "three heads": "x3 & (x7 | ~x9)"}
    return tuple(
        at_most(f"wrong inputs, {name}", wrong_inputs(rule, share), 0)
        for name, rule in rules.items()
    )


@claim(
    id="S-lemma-B.6",
    title="any rule: s features and a lookup on 2^s points",
    statement="Any s-sparse function is computed exactly by s heads (one over a bag of vectors) "
    "and a lookup on 2^s points.",
    formula=r"f(b) = lookup(χ_1, …, χ_s),  δ = \frac{γ}{4}",
    controls=(
        Control("half of R", changes={"bits": (1, 2, 3), "query": 0.5}),
        Control("δ = γ/6", changes={"bits": (1,), "share": 1 / 6}),
    ),
    erratum=Erratum(
        6,
        title="printed: δ = γ/8",
        statement="The head of Lemmas B.2 and B.3 errs by up to γ/4, and the lookup with δ = γ/8 "
        "is exact on it.",
        formula=r"δ = \frac{γ}{4}",
        printed=r"δ = \frac{γ}{8}",
        label="Lemmas B.5 and B.6",
        why="The lookup must tolerate γ/4: δ = γ/4, for which points γ = 4δ apart are far enough.",
    ),
)
def s_lemma_b_6(
    context: Context,
    form: str = DERIVED,
    bits: tuple[int, ...] = BITS,
    query: float = 1.0,
    share: float = 1 / 4,
) -> Evidence:
    """Random truth tables with real values, every embedding, both bases; and inputs of all 1024 at
    T = 10 at which a lookup of one bit, or of three with three heads, is wrong."""
    if form != DERIVED:
        note = "One-head rules of s ≥ 2 bits and the bag happen to pass with γ/8 too."
        return Evidence(*_lookups(1 / 8), derived=_lookups(share), note=note)
    found = exact_evidence(context, random_rule, True, bits, query)
    return Evidence(*found.measurements, *_lookups(share), note=found.note)


@claim(
    id="S-lemma-B.7",
    title="softmax truncation",
    statement="If s of T scores are equal to R and the others at most 0, softmax is near the "
    "uniform distribution on the s, in ℓ1.",
    formula=r"‖softmax(θ) − \frac{1}{s} 1_I‖_1 ≤ \frac{2 (T−s)}{s e^R}",
    check=CheckMethod.TIGHT,
    rejects="a bound larger or smaller by a factor of 1.01",
)
def s_lemma_b_7(context: Context) -> Evidence:
    """The ℓ1 distance to the uniform mixture over its bound, for random and for tight scores."""
    rng = context.draws()
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


@claim(
    id="S-lemma-B.8",
    title="a lookup in three layers",
    statement="For points at least 4δ apart in the maximum norm a three-layer ReLU network gives "
    "f(x_i) for every x within δ of x_i.",
    formula=r"ψ(z) = r(z+2) − r(z+1) − r(z−1) + r(z−2),  ‖x − x_i‖_∞ ≤ δ ⇒ N(x) = f(x_i),  ‖W_1‖_∞ "
    r"≤ \frac{max(1, B+2δ)}{δ},  ‖W_2‖_∞ ≤ max(1, d),  ‖w‖_∞ ≤ max|f|",
    controls=(Control("δ/2", changes={"narrower": 0.5}),),
    erratum=Erratum(
        16,
        title="printed: the bump of the lookup, and its bound on W_1",
        statement="The printed bump ψ(z), z = (x − a)/δ, is 1 within δ of its point, and the "
        "weights of the first layer are bounded without δ.",
        formula=r"ψ(z) = r(z+2) − r(z+1) − r(z−1) + r(z−2),  ‖W_1‖_∞ ≤ \frac{max(1, B+2δ)}{δ}",
        printed=r"ψ(z) = r(z+2) − r(z+1) − r(2−z) + r(1−z),  ‖W_1‖_∞ ≤ \frac{max(1, B)}{δ}",
        why="Both of its steps are 1 there, and it is 0. ψ = r(z+2) − r(z+1) − r(z−1) + r(z−2) is "
        "1. The bound is max(1, B + 2δ)/δ.",
    ),
)
def s_lemma_b_8(context: Context, form: str = DERIVED, narrower: float = 1.0) -> Evidence:
    """Outputs at points with noise up to δ, in the corners of the noise and inside, and norms; the
    bump within δ of its point, and the entries of W_1 and its biases against their bound."""
    near = np.linspace(-1, 1, 21)  # z = (x − a)/δ
    tolerance = 0.5
    lookup = make_lookup(np.array([[-1.0], [1.0]]), np.ones(2), tolerance)  # B = 1
    entry = largest_of(np.abs(lookup.inner).max(), np.abs(lookup.inner_bias).max())
    if form != DERIVED:
        bump = np.abs(printed_bump(near)).max()
        return Evidence(
            within("largest bump within δ of its point", bump, 1.0, 1.0),
            at_most("‖W_1‖_∞ against max(1, B)/δ", entry, 1.0 / tolerance),
        )
    bump = np.maximum(near[:, None] + CORNERS, 0) @ SIGNS
    rng = context.draws()
    error = ratio = 0.0
    for _ in range(context.pick(quick=60, paper=600)):
        dimension, noise_size = int(rng.integers(1, 5)), float(10 ** rng.uniform(-3, 0))
        grid = rng.integers(-4, 5, size=(40, dimension))
        points = np.unique(grid, axis=0) * (4 * noise_size)
        values = rng.normal(size=len(points))
        lookup = make_lookup(points, values, narrower * noise_size)
        for noise in (rng.uniform(-1, 1, points.shape), rng.choice([-1.0, 1.0], points.shape)):
            found = lookup(points + noise * noise_size * (1 - 1e-12))
            error = largest_of(error, float(np.abs(found - values).max()))
        largest, longest = float(np.abs(values).max()), float(np.abs(points).max())
        norms = lookup_norms(lookup, longest, noise_size, largest)
        ratio = largest_of(ratio, *(norm.value / norm.bound for norm in norms))
    return Evidence(
        close("values at points with noise δ", error, 1e-10),
        at_most("norm / bound", ratio, 1 + 1e-12),
        close("bump within δ of its point, minus 1", np.abs(bump - 1).max(), 1e-12),
        at_most("‖W_1‖_∞ against max(1, B + 2δ)/δ", entry, (1.0 + 2 * tolerance) / tolerance),
    )
