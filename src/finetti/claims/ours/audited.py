"""The audit of checkpoints whose capacity is known by hand."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import optimize

from finetti import audit
from finetti.audit.capacity import RESOLUTION, TUNING
from finetti.bounds.beyond.strata import KAPPA
from finetti.claims.claim import Context, Control, claim
from finetti.claims.evidence import Evidence, at_least, at_most, close, within

WIDTH, LENGTH = 6, 1.5  # of a token, and how long it is
# Radii 1.1^j of W_QW_Kᵀ/√d and W_VW_O; the readout has 1.1⁰.
SCORE, MIXING = 4, -3
JUST_BELOW = 1 - 1e-7
THEIRS, OURS = "Theorem A.17 (S)", "smallest"
Arrays = dict[str, np.ndarray]


def _orthogonal(rng: np.random.Generator) -> np.ndarray:
    return np.linalg.qr(rng.normal(size=(WIDTH, WIDTH)))[0]


def _planted(rng: np.random.Generator, swapped: bool = False) -> Arrays:
    """One layer x + head(x) without norms and biases, with planted products.

    W_Q and W_V are long and W_K and W_O short, so that only the products have the planted norms.
    """
    score = 1.1**SCORE * math.sqrt(WIDTH) * JUST_BELOW
    mixing = 1.1**MIXING * JUST_BELOW
    sizes = np.linspace(1.0, 0.2, WIDTH)
    q, k, v, o = (_orthogonal(rng) for _ in range(4))
    query, key = 7.0 * (q * np.sqrt(sizes)).T, score / 7 * (k * np.sqrt(sizes)).T
    value, output = 9.0 * (v * sizes).T, mixing / 9 * o.T
    named = {"in_proj_weight": np.vstack([query, key, value]), "out_proj.weight": output.T}
    if swapped:
        named["in_proj_weight"] = np.vstack([value, key, query])
    return {f"layers.0.self_attn.{name}": array for name, array in named.items()}


def _by_hand(residual: float = 1.0) -> tuple[float, float]:
    """log N by the best allocation of ε, found by SciPy, and the term of the three radii.

    |out − ôut| ≤ ‖w‖·vρ·ρ²·x_M + ‖w‖ρ·x_V + (1 + v)ρ·x_w, all counted: d², d² and d parameters.
    """
    radii = np.array([1.1**SCORE, 1.1**MIXING, 1.0])
    reach = np.array([radii[1] * LENGTH**3, LENGTH, (residual + radii[1]) * LENGTH])
    counts = np.array([WIDTH**2, WIDTH**2, WIDTH])

    def log_n(free: np.ndarray) -> float:
        shares = np.exp(free) / np.exp(free).sum()
        return float(np.sum(counts * np.log1p(2 * radii * reach / (RESOLUTION * shares))))

    least = optimize.minimize(log_n, np.log(counts / counts.sum()), tol=1e-12).fun
    steps = [2 * math.log(abs(j) + 1) + math.log(KAPPA) for j in (SCORE, MIXING, 0)]
    return float(least), sum(steps)


@claim(
    id="F-audit-planted",
    title="the capacity of a planted checkpoint",
    statement="From the file of a one-layer network with ‖W_QW_Kᵀ‖/√d, ‖W_VW_O‖ and ‖w‖ on the "
    "grid 1.1^j, the audit gives Σ_j D_j log(1 + 2B_ja_jρ_j/(s_jε)) at a nearly best allocation "
    "s_j, and log(3/δ) grows by Σ_j (2 log(|j| + 1) + log κ).",
    label="an audit by hand",
    formula=r"log N(ε) = Σ_j D_j log(1 + \frac{2 B_j a_j ρ_j}{s_j ε}),  log(\frac{3}{δ}) + "
    "Σ_j (2 log(|j| + 1) + log κ)",
    controls=(
        Control("query and value in each other's place", changes={"swapped": True}),
        Control("without the residual's 1", changes={"residual": 0.0}),
        Control("without the term of the radii", changes={"post_hoc": 0.0}),
    ),
)
def f_audit_planted(
    context: Context, swapped: bool = False, residual: float = 1.0, post_hoc: float = 1.0
) -> Evidence:
    """A file in memory, read, mapped, measured and bounded; by hand, SciPy finds the allocation.

    Factors are 7 and 9 times too long on one side, so that only products have the planted norms.
    """
    rng = context.generator(f_audit_planted.id)
    found = audit.audit_checkpoint(_planted(rng, swapped), heads=1)
    capacity = audit.measure_capacity(found, input_norm=LENGTH)
    row = capacity.row("count")
    least, radii = _by_hand(residual)
    assert row.covering is not None
    assert row.gap is not None
    (sure,) = (term for term in row.gap.terms if term.name == "confidence")
    by_hand = 3 * math.sqrt((math.log(3 / 0.05) + post_hoc * radii) / (2 * 10_000))
    slope = math.log(residual + 1.1**MIXING * (1 + 2 * 1.1**SCORE * LENGTH**2))
    ratio = row.covering.value / least
    assert capacity.log_lipschitz is not None
    return Evidence(
        within("log N / by hand at the best allocation", ratio, 1 - 1e-9, 1.005),
        close("the term of three radii, minus by hand", row.post_hoc - radii, 1e-9),
        close("the confidence with the term, minus by hand", sure.value - by_hand, 1e-12),
        within("log Lip / by hand", capacity.log_lipschitz / slope, 1 - 1e-6, 1.0),
        note=f"log N is {row.covering.value:.6g}, by hand {least:.6g}.",
    )


@claim(
    id="F-audit-length",
    title="audits at every context length",
    statement="Of one checkpoint, log N by covers without T is the same number at T = 16 and at "
    "T = 2²⁰, and by Theorem A.17, for the nearest class, it grows like log T.",
    label="audits and the context length",
    formula="log N(ε; 2^{20}) = log N(ε; 16)",
    controls=(Control("Theorem A.17 as the one without T", changes={"ours": THEIRS}),),
)
def f_audit_length(context: Context, ours: str = OURS) -> Evidence:
    """log N of a planted checkpoint at nine context lengths, by both."""
    planted = _planted(context.generator(f_audit_length.id))
    capacity = audit.measure_capacity(audit.audit_checkpoint(planted, heads=2))
    same, theirs = (np.array(capacity.row(name).growth) for name in (ours, THEIRS))
    values, lengths = np.exp(theirs - theirs[0]), np.log(capacity.lengths)
    line = np.polyval(np.polyfit(lengths, values, 1), lengths)
    return Evidence(
        close("values without T that differ from the first", len(set(same)) - 1, 0.0),
        at_least("Theorem A.17: growth from 16 to 2²⁰ tokens", values[-1], 1.05),
        close("the same, farthest from a line in log T", np.abs(line - values).max(), 5e-3),
    )


def _tuned(base: Arrays, step: np.ndarray) -> Arrays:
    name = "layers.0.self_attn.out_proj.weight"
    return base | {name: base[name] + step}


def _everything(moved: Mapping[Any, Any], found: audit.Audit) -> dict[Any, Any]:
    """As if all matrices had moved by their own length."""
    head = found.layers[0].heads[0]
    others = {("0", role): audit.WeightDelta(measured) for role, measured in head.factors.items()}
    return {**others, **moved}


@claim(
    id="F-audit-tuning",
    title="the capacity of a fine-tuning",
    statement="Of base + Δ only the Δ are covered: a step of rank 1 in one matrix costs at most "
    "(d₁ + d₂)·log(1 + 8B/x), matrices that did not move nothing, and together with the readout "
    "less than the whole network.",
    label="audits of a fine-tuning",
    formula=r"log N(x) ≤ r (d_1 + d_2) log(1 + \frac{8 B}{x})",
    controls=(
        Control("matrices that did not move are covered, too", changes={"move": _everything}),
    ),
)
def f_audit_tuning(context: Context, move: Any = lambda moved, found: moved) -> Evidence:
    """A planted checkpoint whose output matrix moves by a matrix of rank 1 and norm 0.01."""
    rng = context.generator(f_audit_tuning.id)
    base = _planted(rng)
    left, right = (rng.normal(size=WIDTH) for _ in range(2))
    step = 0.01 * np.outer(left, right) / np.linalg.norm(left) / np.linalg.norm(right)
    tuned = _tuned(base, step)
    found = audit.audit_checkpoint(base, heads=1)
    changes = audit.compare_checkpoints(tuned, base, heads=1)
    moved = move(audit.moved_weights(tuned, base, changes), found)
    capacity = audit.measure_capacity(found, base=found, moved=moved)
    row, whole = capacity.row(TUNING), capacity.row(OURS)
    assert row.covering is not None
    assert whole.covering is not None
    ratio = row.covering.value / whole.covering.value
    costs = {term.matrix: term.value for term in row.terms}
    network = audit.tuned_network(found, moved).composition(capacity.sample)
    names = [each.name for each in network.costly]
    log_x = network.resolutions(math.log(RESOLUTION))[names.index("W_O")]
    by_rank = 2 * WIDTH * math.log1p(8 * 0.011 / math.exp(log_x))
    factors = [each.log_factor for each in network.costly]
    spent = float(np.exp(network.resolutions(math.log(RESOLUTION)) + factors).sum())
    return Evidence(
        close("weights that cost anything, beside W_O and the readout", len(costs) - 2, 0.0),
        at_most("log N of the step / (d₁ + d₂)·log(1 + 8B/x)", costs["W_O"] / by_rank, 1.0),
        at_most("log N of base + Δ / of the whole network", ratio, 0.9),
        close("Σ_j a_jρ_jx_j minus ε", spent - RESOLUTION, 1e-12),
    )
