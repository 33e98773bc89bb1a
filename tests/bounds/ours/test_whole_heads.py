"""All heads from whole matrices, layers that share weights, and one ball for all parameters."""

import math

import numpy as np
import pytest

from finetti.bounds import Sample, ours
from finetti.core.errors import InputError
from finetti.core.numerics.extremes import largest_of

WIDTH, HEADS, INSIDE, TOKENS = 4, 2, 3, 5
MATRICES = {"query": (4, 6), "key": (4, 6), "value": (4, 6), "output": (6, 4)}
BIASES = {f"{name}_bias": (1, shape[1]) for name, shape in MATRICES.items()}


def softmax(scores):
    found = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return found / found.sum(axis=-1, keepdims=True)


def turned(rows, angle):
    """The first two entries of every row turned by its place times an angle."""
    places = angle * np.arange(len(rows))
    cos, sin = np.cos(places), np.sin(places)
    first, second = rows[:, 0].copy(), rows[:, 1].copy()
    rows = rows.copy()
    rows[:, 0], rows[:, 1] = cos * first - sin * second, sin * first + cos * second
    return rows


def attention(x, w, angle):
    parts = []
    for h in range(HEADS):
        own = slice(INSIDE * h, INSIDE * (h + 1))
        query, key, value = (
            x @ w[name][:, own] + w[f"{name}_bias"][:, own] for name in ("query", "key", "value")
        )
        scores = turned(query, angle) @ turned(key, angle).T / math.sqrt(INSIDE)
        parts.append(softmax(scores) @ value)
    return np.hstack(parts) @ w["output"] + w["output_bias"]


def size(array):
    return np.linalg.norm(array, 2)


def classes(base, deltas):
    """W₀ + Δ where Δ is not zero, W₀ elsewhere."""
    made = {}
    for name, array in base.items():
        kind = ours.RowWeights if "bias" in name else ours.MatrixWeights
        moved, rows = size(deltas[name]), {"rows": array.shape[0], "columns": array.shape[1]}
        if moved == 0:
            made[name] = kind(**rows, norm=size(array), trained=False)
        else:
            made[name] = kind(**rows, norm=moved, base_norm=size(array))
    return made


def heads_of(base):
    found = []
    for h in range(HEADS):
        own = slice(INSIDE * h, INSIDE * (h + 1))
        q, k, v = (base[name][:, own] for name in ("query", "key", "value"))
        o = base["output"][own]
        norms = {"query": size(q), "key": size(k), "value": size(v)}
        found.append(ours.PretrainedHeadNorms(**norms, scores=size(q @ k.T), mixing=size(v @ o)))
    return tuple(found)


def draw(rng, fraction):
    shapes = MATRICES | BIASES
    scale = 10.0 ** rng.uniform(-1, 0.5, size=len(shapes))
    pairs = zip(scale, shapes.items(), strict=True)
    base = {name: size * rng.normal(size=shape) for size, (name, shape) in pairs}
    still = rng.integers(0, 2, size=len(shapes))
    deltas = {
        n: keep * 10.0 ** rng.uniform(-3, 0) * rng.normal(size=array.shape)
        for keep, (n, array) in zip(still, base.items(), strict=True)
    }
    # Two members of the class: parts of Δ between −1 and 1.
    members = [
        {n: base[n] + rng.uniform(-1, 1) * deltas[n] * fraction for n in base} for _ in range(2)
    ]
    return base, deltas, members


@pytest.mark.parametrize("angle", [0.0, 0.7])
def test_whole_heads_are_never_exceeded(angle):
    rng, worst = np.random.default_rng(0), 0.0
    for _ in range(300):
        base, deltas, (one, two) = draw(rng, 1.0)
        made = classes(base, deltas)
        x = 10.0 ** rng.uniform(-1.5, 0.5) * rng.normal(size=(TOKENS, WIDTH))
        y = x + rng.integers(0, 2) * 10.0 ** rng.uniform(-3, 0) * rng.normal(size=x.shape)
        radius = max(np.linalg.norm(z, axis=1).max() for z in (x, y))
        piece = ours.FineTunedHeads(
            **made, base_heads=heads_of(base), head_dimension=INSIDE, rotary=angle > 0
        )
        passage = piece.propagate(math.log(radius))
        before, after = attention(x, one, angle), attention(y, two, angle)
        names = {id(weights): name for name, weights in made.items()}
        allowed = math.exp(passage.log_lipschitz) * np.linalg.norm(x - y, axis=1).max()
        for part in passage.parts:
            name = names[id(part.weights)]
            allowed += math.exp(part.log_factor) * size(one[name] - two[name])
        change = np.linalg.norm(before - after, axis=1).max()
        longest = np.linalg.norm(before, axis=1).max()
        assert change <= allowed * (1 + 1e-12) + 1e-13 * longest  # rounding
        assert longest <= math.exp(passage.log_radius) * (1 + 1e-12)
        worst = largest_of(worst, change / allowed if allowed else 0.0)
    assert worst > 0.1  # a test that could see a lost factor of ten


def test_heads_that_read_one_token_each_use_up_what_a_move_of_the_values_costs():
    """Token h is e_h, head h reads it alone, and Δ = .1 Σ_h e_h w_hᵀ: √2 · .1, with ‖Δ‖ = .1."""
    base = {name: np.zeros(shape) for name, shape in (MATRICES | BIASES).items()}
    base["query"][0, [0, INSIDE]] = 100.0  # of token 0 in both heads
    base["key"][[0, 1], [0, INSIDE]] = 100.0
    base["output"][[0, INSIDE], [0, 1]] = 1.0
    deltas = {name: np.zeros_like(array) for name, array in base.items()}
    deltas["value"][[0, 1], [0, INSIDE]] = 0.1
    made = classes(base, deltas)
    piece = ours.FineTunedHeads(**made, base_heads=heads_of(base), head_dimension=INSIDE)
    (part,) = (each for each in piece.propagate(0.0).parts if each.weights is made["value"])
    x = np.eye(TOKENS, WIDTH)
    change = attention(x, base | {"value": deltas["value"]}, 0.0) - attention(x, base, 0.0)
    used = np.linalg.norm(change, axis=1).max() / (math.exp(part.log_factor) * 0.1)
    assert used == pytest.approx(1, abs=1e-12)


def test_whole_heads_without_a_move_are_the_products_of_the_base():
    base, deltas, _ = draw(np.random.default_rng(1), 1.0)
    fixed = classes(base, {name: 0 * delta for name, delta in deltas.items()})
    heads = heads_of(base)
    piece = ours.FineTunedHeads(**fixed, base_heads=heads, head_dimension=INSIDE)
    radius = 1.7
    passage = piece.propagate(math.log(radius))
    bias = size(base["query_bias"])
    by_hand = sum(
        h.mixing * (1 + radius * (2 * h.scores * radius + h.key * bias) / math.sqrt(INSIDE))
        for h in heads
    )
    assert math.exp(passage.log_lipschitz) == pytest.approx(by_hand, rel=1e-12)
    assert not any(part.weights.trained for part in passage.parts)


def test_moves_of_queries_and_keys_add_to_the_products_of_the_base():
    base, _, _ = draw(np.random.default_rng(1), 1.0)
    deltas = {name: np.zeros_like(array) for name, array in base.items()}
    deltas["query"][0, 0], deltas["key"][0, 0] = 0.1, 0.2
    head = ours.PretrainedHeadNorms(query=2.0, key=2.0, value=1.0, scores=0.01, mixing=1e-3)
    piece = ours.FineTunedHeads(**classes(base, deltas), base_heads=(head,), head_dimension=INSIDE)
    radius, scores = 1.7, 0.01 + 2.0 * 0.2 + 0.1 * 2.2
    steep = 2 * scores * radius + 2.2 * size(base["query_bias"])
    by_hand = 1e-3 * (1 + radius * steep / math.sqrt(INSIDE))
    found = piece.propagate(math.log(radius)).log_lipschitz
    assert math.exp(found) == pytest.approx(by_hand, rel=1e-12)


def test_shared_weights_add_what_multiplies_their_errors():
    rng = np.random.default_rng(2)
    matrix = rng.normal(size=(3, 3))
    norm = size(matrix)
    once = ours.LinearPiece(matrix=ours.MatrixWeights(rows=3, columns=3, norm=norm))
    found = ours.RepeatedPiece(pieces=(once,), times=4).propagate(0.0)
    assert math.exp(found.log_lipschitz) == pytest.approx(norm**4)
    (part,) = found.parts
    assert math.exp(part.log_factor) == pytest.approx(4 * norm**3)  # the derivative of W⁴
    for _ in range(50):
        # Both powers are of members of the class.
        step = 10.0 ** rng.uniform(-6, -1) * rng.normal(size=(3, 3))
        moved = matrix * 0.7 + step
        moved *= min(1.0, norm / size(moved))
        change = size(np.linalg.matrix_power(matrix, 4) - np.linalg.matrix_power(moved, 4))
        assert change <= math.exp(part.log_factor) * size(matrix - moved) * (1 + 1e-12)
    twice = ours.BlockNetwork(pieces=(once, once)).propagate_tokens(Sample(1, 1))
    assert len(twice.parts) == 2  # of their own


def test_one_ball_by_hand():
    full = ours.MatrixWeights(rows=3, columns=2, norm=2.0, frobenius_norm=2.5)
    thin = ours.MatrixWeights(rows=6, columns=6, norm=4.0, nuclear_norm=6.0, rank=2)
    bias = ours.RowWeights(rows=1, columns=5, norm=0.5)
    parts = tuple(
        ours.WeightError(name, None, math.log(a), w)
        for name, a, w in (("W", 3.0, full), ("M", 0.5, thin), ("b", 7.0, bias))
    )
    found = ours.OneBallComposition(parts)
    assert found.parameters == (6, 24, 5)
    # M = UVᵀ: both factors have ‖·‖ ≤ 2 and ‖·‖_F² ≤ 6.
    multiplier = math.sqrt(9 + 2 * (0.5 * 2) ** 2 + 49)
    radius = math.sqrt(2.5**2 + 2 * 6 + 0.25)  # a bias is no longer than its length
    for resolution in (1e-6, 0.3, 10.0):
        by_hand = 35 * math.log(1 + 2 * multiplier * radius / resolution)
        total, terms = found.terms(math.log(resolution))
        assert math.exp(total) == pytest.approx(by_hand, rel=1e-12)
        assert math.exp(found.log_log_cover(math.log(resolution))) == pytest.approx(by_hand)
        assert [term.share for term in terms] == pytest.approx([6 / 35, 24 / 35, 5 / 35])


def test_each_kind_of_weights_knows_its_longest_euclidean_length():
    gain = ours.GainWeights(rows=1, columns=9, norm=2.0)  # every entry at most 2
    table = ours.RowWeights(rows=4, columns=9, norm=2.0)  # every row at most 2
    matrix = ours.MatrixWeights(rows=4, columns=9, norm=2.0)  # singular values at most 2
    for weights, longest in ((gain, 6.0), (table, 4.0), (matrix, 4.0)):
        assert math.exp(weights.log_frobenius) == pytest.approx(longest)
    with pytest.raises(InputError, match="GainWeights"):
        ours.NormalizationPiece(gain=ours.RowWeights(rows=1, columns=9))


def test_one_ball_moves_as_far_as_its_constant_says():
    rng = np.random.default_rng(3)
    thin = ours.MatrixWeights(rows=5, columns=5, norm=1.0, rank=1)
    part = ours.WeightError("M", None, 0.0, thin)
    found = ours.OneBallComposition((part,))
    for _ in range(200):
        u, v = (rng.normal(size=(5, 1)) for _ in range(2))
        u, v = (each / max(1.0, size(each)) for each in (u, v))
        a, b = (10.0 ** rng.uniform(-5, 0) * rng.normal(size=(5, 1)) for _ in range(2))
        a, b = ((each + d) / max(1.0, size(each + d)) for each, d in ((u, a), (v, b)))
        moved = math.hypot(np.linalg.norm(u - a), np.linalg.norm(v - b))
        limit = math.exp(found.log_multiplier) * moved
        assert size(u @ v.T - a @ b.T) <= limit * (1 + 1e-12) + 1e-15


def test_blocks_together_and_apart():
    square = ours.MatrixWeights(rows=8, columns=8, norm=2.0)
    network = ours.BlockNetwork(pieces=(ours.LinearPiece(matrix=square),))
    sample = Sample(1000, 10)
    apart = ours.BlocksCovering(network, 0.1).evaluate(sample)
    together = ours.BlocksCovering(network, 0.1, cover="together").evaluate(sample)
    assert together.value == pytest.approx(64 * math.log(1 + 2 * 2 * math.sqrt(8) / 0.1))
    assert apart.value == pytest.approx(64 * math.log(1 + 2 * 2 / 0.1))
