"""Two routes to one number, and numbers measured on real networks."""

import math
import subprocess
import sys
from dataclasses import fields, replace
from itertools import product

import jax
import numpy as np
import pytest

from finetti import attention
from finetti.attention.lipschitz import heads_token_perturbation, residual_perturbation
from finetti.attention.networks.multihead import MultiHead
from finetti.attention.networks.residual_transformer import (
    FeedForward,
    ResidualLayer,
    ResidualTransformer,
    rbf_attention,
)
from finetti.bounds import BoundSettings, load_bounds
from finetti.bounds import exchangeability as bounds
from finetti.bounds.bound import ONE_HEAD, ONE_LAYER
from finetti.bounds.sample import Sample
from finetti.core.errors import UnsupportedError
from finetti.kernels import RBF

SAMPLE = Sample(10**6, 50, input_norm=1.7, loss_lipschitz=4.0, loss_bound=4.0, delta=0.01)


BY_NAME = [bound for bound in load_bounds() if bound.paper in ("E", "R")]


@pytest.mark.parametrize("kind", BY_NAME, ids=lambda kind: kind.name)
def test_every_bound_is_built_by_name_and_shows_itself(kind):
    forms = ["derived"] if kind.printed_kind is None else ["derived", "printed"]
    heads = 200 if kind.paper == "R" else 1 if ONE_HEAD in kind.assumes else 2
    for form in forms:
        settings = BoundSettings(n_heads=heads, width=200, form=form)
        bound = kind.from_settings(settings)
        kind.check_names(settings.norms, kind.name)
        found = bound.evaluate(SAMPLE)
        assert (found.form, found.kind, found.quantity) == (form, bound.kind, kind.quantity)
        assert not math.isnan(found.log_value)
        assert kind.name in str(bound)
        assert found.citation in str(found)
        assert list(bound.sensitivity(SAMPLE))
        shares = [term.share for term in found.terms if term.share is not None]
        assert not any(shares) or sum(shares) == pytest.approx(1.0)


@pytest.mark.parametrize("kind", BY_NAME, ids=lambda kind: kind.name)
def test_layers_and_heads_that_a_theorem_does_not_have_are_refused(kind):
    for assumption, sizes in ((ONE_LAYER, {"n_layers": 3}), (ONE_HEAD, {"n_heads": 4})):
        settings = BoundSettings(width=200, **sizes)
        if assumption in kind.assumes:
            with pytest.raises(UnsupportedError, match=r"assumes a single .* Nearest bound: "):
                kind.from_settings(settings)
        else:
            kind.from_settings(settings)


def single_network(omega, size, alpha, inner, width, skips=False):
    head = bounds.FullHeadNorms(omega / 2, omega / 2, omega, size / 2, size / 2, size)
    layer = bounds.FullLayerNorms((head,), alpha, None, inner, None, skips, skips)
    return bounds.FullTransformer(8, 8, width, (layer,), bandwidth=float(width))


@pytest.mark.parametrize("form", ["printed", "derived"])
def test_theorem_c_4_without_skips_is_theorem_5_3(form):
    """ω = max{ω^{qk}, ω^v} and R^attn = max{R^{qk}, R^v}, so ω^q = ω^k = ω/2."""
    class_ = single_network(0.8, 2.0, 1.3, 4.0, 4)
    special = bounds.SingleRate(bounds.SingleAttention(8, 4, 0.8, 2.0, 1.3, 4.0), form=form)
    general = bounds.TransformerRate(class_, form=form)
    found = special.evaluate(SAMPLE), general.evaluate(SAMPLE)
    assert found[0].log_value == pytest.approx(found[1].log_value, abs=1e-13)


@pytest.mark.parametrize("constants", ["paper", "sharp"])
def test_the_same_with_all_constants_by_hand(constants):
    omega, size, alpha, inner, radius, width = 0.8, 2.0, 1.3, 4.0, SAMPLE.input_norm, 4
    c = 1 / width if constants == "sharp" else 1.0
    reach = alpha * radius
    rho = omega * (1 + c * (2 * omega) ** 2 * reach**2)
    heads = size + c * reach**2 * omega * 2 * omega * 2 * size
    moved = rho * inner * radius + reach * heads
    p = 8 * 8 + 2 * 8 * width + 8 * 8 if constants == "sharp" else 5 * 8 * 8
    rest = math.sqrt(math.pi) / 2 if constants == "sharp" else 2
    rademacher = 12 * math.sqrt(p / 1e6) * (rest + math.sqrt(math.log(1 + 2 * moved)))
    confidence = 3 * math.sqrt(math.log(400) / 2e6) + math.sqrt(math.log(200) / 2e6)
    attention = bounds.SingleAttention(8, width, omega, size, alpha, inner)
    special = bounds.SingleRisk(attention, constants).evaluate(SAMPLE).value
    assert special == pytest.approx(4 * (2 * rademacher + confidence), rel=1e-12)
    general = bounds.TransformerRisk(attention.as_network(), constants).evaluate(SAMPLE).value
    assert special == pytest.approx(general, rel=1e-14)


def test_settings_by_name_give_the_same_bound():
    norms = {"hidden_dimension": 12, "value_norm": 2.0, "layers": [{}, {"inner_mixed_norm": 5.0}]}
    found = bounds.FullTransformerGap.from_settings(BoundSettings(2, 8, 2, norms=norms))
    head = bounds.FullHeadNorms(value_norm=2.0, value_mixed_norm=2.0)
    layers = (
        bounds.FullLayerNorms((head, head)),
        bounds.FullLayerNorms((head, head), inner_mixed_norm=5.0),
    )
    assert found == bounds.FullTransformerGap(bounds.FullTransformer(8, 12, 4, layers))


def network(layers):
    """(A^x, A^σ, W_q, W_k, W_v) of each layer → the network with skips."""
    return ResidualTransformer(
        [
            ResidualLayer(
                FeedForward(*layer[:2]),
                MultiHead(*layer[2:], attention=rbf_attention(layer[3].shape[-1])),
            )
            for layer in layers
        ]
    )


def small_transformer(rng, n_layers=2):
    """Two heads on tokens of dimension 4; (A^x, A^σ, W_q, W_k, W_v) of each layer."""
    shapes = (4, 6), (6, 4), (2, 4, 2), (2, 4, 2), (2, 4, 4)
    return [[rng.normal(size=shape) / 2 for shape in shapes] for _ in range(n_layers)]


def larger(first, second):
    """The smallest class with both networks."""

    def joined(a, b):
        if a is None or isinstance(a, bool | str):
            return a
        if isinstance(a, tuple):
            return tuple(joined(x, y) for x, y in zip(a, b, strict=True))
        if hasattr(a, "__dataclass_fields__"):
            parts = {f.name: joined(getattr(a, f.name), getattr(b, f.name)) for f in fields(a)}
            return replace(a, **parts)
        return max(a, b)

    return joined(first, second)


def test_real_networks_stay_inside():
    rng, lemma = np.random.default_rng(9), jax.jit(residual_perturbation)
    tokens = rng.normal(size=(5, 4))
    sample = Sample(1, 5, input_norm=float(np.linalg.norm(tokens, axis=1).max()))
    for size in (1e-3, 0.03, 1.0):
        weights, noise = small_transformer(rng), small_transformer(rng)
        pairs = [
            zip(layer, extra, strict=True) for layer, extra in zip(weights, noise, strict=True)
        ]
        moved = [[w + size * e for w, e in layer] for layer in pairs]
        first, second = network(weights), network(moved)
        both = larger(bounds.measure_network(first), bounds.measure_network(second))
        change = max(
            float((np.linalg.norm(a - b, axis=(-2, -1)) / np.linalg.norm(a, axis=(-2, -1))).max())
            for layer, twin in zip(weights, moved, strict=True)
            for a, b in zip(layer, twin, strict=True)
        )
        found = lemma(first, second, tokens)
        for constants in ("paper", "sharp"):
            value = (
                bounds.TransformerDeviation(both, constants, change=change).evaluate(sample).value
            )
            # Mixed norms are at least operator norms, so this is above the lemma, too.
            assert float(found.measured) <= float(found.bound) <= value


def test_the_token_constant_is_the_lemmas():
    rng = np.random.default_rng(3)
    module = network(small_transformer(rng, n_layers=1))
    tokens, other = rng.normal(size=(2, 5, 4))
    lemma = jax.jit(heads_token_perturbation)(module.layers[0].heads, tokens, other)
    lengths = np.linalg.norm(np.stack([tokens, other]), axis=-1)
    moved = np.linalg.norm(tokens - other, axis=1).max()
    bound = bounds.HeadsTokenConstant(bounds.measure_network(module), "sharp")
    value = bound.evaluate(Sample(1, 5, input_norm=float(lengths.max()))).value
    assert value * moved == pytest.approx(float(lemma.bound), rel=1e-6)
    assert float(lemma.measured) <= value * moved


def test_measured_norms_bound_the_operator():
    rng = np.random.default_rng(0)
    for r in (1.0, 1.5, 2.0, 3.0, math.inf):
        weights = rng.normal(size=(4, 3))
        norm, size = bounds.matrix_norms(weights, r)
        tokens = rng.normal(size=(2000, 4))
        out = np.linalg.norm(tokens @ weights, r, axis=1) / np.linalg.norm(tokens, r, axis=1)
        assert out.max() <= norm * (1 + 1e-12) <= size * (1 + 1e-9)


def test_a_single_attention_is_measured():
    inner, *weights = np.random.default_rng(4).normal(size=(4, 4, 4))
    heads = MultiHead(*(w[None] for w in weights), attention=rbf_attention(4, "5.4"))
    layer = ResidualLayer(FeedForward(inner, skip=False), heads, skip=False)
    module = ResidualTransformer([layer])
    bound = bounds.SingleRisk.from_weights(module)
    spectral = max(np.linalg.norm(w, 2) for w in weights)
    assert bound.attention.attention_norm == pytest.approx(spectral, rel=1e-6)
    assert bound.attention.feed_forward_size == pytest.approx(np.linalg.norm(inner))
    # Theorem 5.3 has one ω for the three matrices, the general theorem a norm for each.
    general = bounds.TransformerRisk.from_weights(module).evaluate(SAMPLE).value
    assert bound.evaluate(SAMPLE).value >= general


def log_packing(points, separation, order=2):
    """The log of how many points are left when each is farther than that from the others."""
    kept = []
    for point in points:
        if all(np.linalg.norm(point - other, order) > separation for other in kept):
            kept.append(point)
    return math.log(len(kept))


@pytest.mark.parametrize("resolution", [0.1, 0.3, 0.9])
def test_a_ball_of_matrices_is_covered(resolution):
    axis = np.linspace(-1, 1, 41)
    grid = np.array([point for point in product(axis, axis) if np.hypot(*point) <= 1])
    bound = bounds.MatrixBallCovering(2, 1, 1.0, resolution).evaluate(SAMPLE)
    assert log_packing(grid, 2 * resolution) <= bound.value


def test_a_finite_class_of_networks_is_covered():
    """One-dimensional tokens: all networks with weights in a grid, at one input."""
    tokens = np.array([0.6, -1.0, 0.9])
    values = (-1.0, 0.0, 1.0)
    outputs = []
    for inner, outer, query, key, value in product(values, repeat=5):
        after = np.maximum(tokens * inner, 0) * outer + tokens
        scores = -((query * after[:, None] - key * after[None]) ** 2) / 4  # σ² = 2
        weights = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        outputs.append(weights @ (value * after) + after)
    bound = bounds.FullTransformerCovering(
        bounds.FullTransformer.uniform(1), "sharp", resolution=0.2
    )
    covered = bound.evaluate(Sample(1, 3, input_norm=1.0)).value
    packed = log_packing(np.array(outputs), 2 * 0.2, order=np.inf)
    assert 1 < packed <= covered


def test_pretraining_heads():
    rng = np.random.default_rng(3)
    downstream, pretrained = rng.normal(size=(4, 2)), rng.normal(size=(4, 6))
    matrix = bounds.transfer_matrix(downstream, pretrained)
    np.testing.assert_allclose(matrix @ pretrained.T, downstream.T, atol=1e-12)
    assert bounds.transfer_condition_number(pretrained, pretrained) == pytest.approx(1.0)
    rows = np.linalg.qr(rng.normal(size=(6, 4)))[0].T  # orthonormal rows
    np.testing.assert_allclose(
        bounds.transfer_matrix(downstream, rows), downstream.T @ rows, atol=1e-12
    )
    bound = bounds.TransferApproximation.from_weights(
        downstream, pretrained, pretraining_excess=0.1, transfer_error=0.0
    )
    assert bound.condition_number == pytest.approx(np.linalg.norm(matrix, 2) ** 2)


def test_the_effective_dimension_of_keys():
    keys = np.random.default_rng(0).normal(size=(20, 2))
    gram = np.exp(-np.sum((keys[:, None] - keys[None]) ** 2, axis=-1) / 2)
    found = bounds.RegularizedDeviation.from_keys(gram, 0.01).effective_dimension
    eigenvalues = np.linalg.eigvalsh(gram)
    assert found == pytest.approx(np.sum(eigenvalues / (eigenvalues + 0.2)), rel=1e-9)
    assert found == pytest.approx(float(attention.effective_dimension(keys, 0.01, kernel=RBF())))
    assert bounds.RegularizedDeviation.from_keys(gram, 0.01).effective_dimension == found


def test_no_jax_is_loaded():
    code = (
        "import sys; from finetti.bounds.exchangeability import *; from finetti.bounds import *; "
        "import finetti.bounds.exchangeability as e; "
        "n = e.FullTransformer.uniform(8); s = Sample(100, 10); "
        "e.TransformerRisk(n, integral='quadrature').evaluate(s); "
        "e.TransformerRate(n).evaluate(s); "
        "e.ConditionalMeanError().evaluate(s); e.SurrogateApproximation(1, 1).evaluate(s); "
        "e.SingleRisk(e.SingleAttention(4, 4)).evaluate(s); e.measure_layer; "
        "sys.exit('jax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
