"""Paper E's classes: from settings and arrays, by hand; and what they refuse."""

import math

import numpy as np
import pytest

from finetti.bounds import BoundSettings
from finetti.bounds import exchangeability as bounds
from finetti.bounds.exchangeability.layer_constants import log_deviation
from finetti.bounds.value import Sample
from finetti.core.errors import InputError

SAMPLE = Sample(10**6, 50, input_norm=1.7, loss_lipschitz=4.0, loss_bound=4.0, delta=0.01)


@pytest.mark.parametrize("form", ["printed", "derived"])
def test_theorem_c_4_without_skips_is_theorem_5_3(form):
    """ω = max{ω^{qk}, ω^v} and R^attn = max{R^{qk}, R^v}, so ω^q = ω^k = ω/2."""
    head = bounds.FullHeadNorms(0.4, 0.4, 0.8, 1.0, 1.0, 2.0)
    layer = bounds.FullLayerNorms((head,), 1.3, None, 4.0, None, False, False)
    general = bounds.TransformerRate(bounds.FullTransformer(8, 8, 4, (layer,)), form=form)
    special = bounds.SingleRate(bounds.SingleAttention(8, 4, 0.8, 2.0, 1.3, 4.0), form=form)
    found = special.evaluate(SAMPLE), general.evaluate(SAMPLE)
    assert found[0].log_value == pytest.approx(found[1].log_value, abs=1e-13)


def test_the_class_of_theorem_5_3_is_a_network_by_hand():
    """One head of width 4 without skips, σ² = 4: S and the number of parameters."""
    omega, size, alpha, inner, radius, width = 0.8, 2.0, 1.3, 4.0, SAMPLE.input_norm, 4
    reach = alpha * radius
    rho = omega * (1 + (2 * omega) ** 2 * reach**2 / width)
    moved = rho * inner * radius + reach * size
    moved += reach**3 * omega * 2 * omega * 2 * size / width
    single = bounds.SingleAttention(8, width, omega, size, alpha, inner)
    network = single.as_network()
    assert log_deviation(network, radius)[0] == pytest.approx(math.log(moved), rel=1e-13)
    assert network.n_parameters == 8 * 8 + 2 * 8 * width + 8 * 8
    risks = bounds.SingleRisk(single), bounds.TransformerRisk(network)
    assert risks[0].evaluate(SAMPLE).log_value == risks[1].evaluate(SAMPLE).log_value


def test_settings_by_name_give_the_same_bound():
    norms = {"hidden_dimension": 12, "value_norm": 2.0, "layers": [{}, {"inner_mixed_norm": 5.0}]}
    found = bounds.FullTransformerGap.from_settings(BoundSettings(2, 8, 2, norms=norms))
    head = bounds.FullHeadNorms(value_norm=2.0, value_mixed_norm=2.0)
    layers = (
        bounds.FullLayerNorms((head, head)),
        bounds.FullLayerNorms((head, head), inner_mixed_norm=5.0),
    )
    assert found == bounds.FullTransformerGap(bounds.FullTransformer(8, 12, 4, layers))


def test_a_class_is_measured_from_arrays():
    rng = np.random.default_rng(4)
    inner, query, key, value = (
        rng.normal(size=shape) for shape in ((4, 4), (4, 3), (4, 3), (4, 4))
    )
    norms, sizes = zip(*map(bounds.matrix_norms, (query, key, value)), strict=True)
    assert norms == pytest.approx([np.linalg.norm(w, 2) for w in (query, key, value)])
    assert sizes == pytest.approx([np.linalg.norm(w) for w in (query, key, value)])
    single = bounds.SingleAttention(4, 3, max(norms), max(sizes), *bounds.matrix_norms(inner))
    layer = {"inner": inner, "query": [query], "key": [key], "value": [value]}
    skips = {"feed_forward_skip": False, "attention_skip": False}
    network = bounds.FullTransformer.from_arrays([layer | skips], bandwidth=3.0)
    assert (network.dimension, network.head_dimension) == (4, 3)
    assert network.layers[0].heads[0].key_mixed_norm == pytest.approx(np.linalg.norm(key))
    # Theorem 5.3 has one ω for the three matrices, the general theorem a norm for each.
    special, general = bounds.SingleRisk(single), bounds.TransformerRisk(network)
    assert special.evaluate(SAMPLE).value >= general.evaluate(SAMPLE).value
    with pytest.raises(InputError, match="keep the dimension 4"):
        bounds.FullTransformer.from_arrays([layer | {"value": [np.eye(3)]}])


def test_transfer_matrix_maps_pretraining_to_downstream_heads():
    rng = np.random.default_rng(3)
    downstream, pretrained = rng.normal(size=(4, 2)), rng.normal(size=(4, 6))
    matrix = bounds.transfer_matrix(downstream, pretrained)
    np.testing.assert_allclose(matrix @ pretrained.T, downstream.T, atol=1e-12)
    assert bounds.transfer_condition_number(pretrained, pretrained) == pytest.approx(1.0)
    rows = np.linalg.qr(rng.normal(size=(6, 4)))[0].T  # orthonormal rows
    np.testing.assert_allclose(
        bounds.transfer_matrix(downstream, rows), downstream.T @ rows, atol=1e-12
    )
    found = bounds.transfer_condition_number(downstream, pretrained)
    assert found == pytest.approx(np.linalg.norm(matrix, 2) ** 2)


def test_downstream_weights_outside_the_range_are_refused():
    one, rest = np.eye(3)[:, :1], np.eye(3)[:, 1:]
    with pytest.raises(InputError, match=r"range of `pretrained`.* 100 %"):
        bounds.transfer_condition_number(one, rest)
    with pytest.raises(InputError, match="range of `pretrained`"):
        bounds.transfer_condition_number(one, np.zeros((3, 2)))


@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e150])
def test_downstream_weights_in_the_range_pass_at_any_scale(scale):
    rng = np.random.default_rng(1)
    source = rng.normal(size=(6, 3)) * 10.0 ** -np.arange(0, 9, 3)  # condition 10⁶
    target = scale * (source @ rng.normal(size=(3, 2)))
    found = bounds.transfer_matrix(target, scale * source)
    np.testing.assert_allclose(found @ (scale * source).T, target.T, rtol=0, atol=1e-8 * scale)


def test_only_the_part_of_the_error_that_tokens_reduce_is_solved_for():
    with pytest.raises(InputError, match="the bias of the ridge stays"):
        bounds.ConditionalMeanError(0.25, source_norm=2.0).tokens_needed(0.4, SAMPLE)


ZERO = bounds.TransformerRate(bounds.FullTransformer.uniform(4, norm=0.0))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: bounds.FullTransformer(1, 1, 1, ()), "`layers`"),
        (lambda: bounds.FullTransformer.from_arrays([]), "`layers`"),
        (lambda: bounds.FullLayerNorms(()), "`heads`"),
        (lambda: bounds.FullLayerNorms(outer_norm=None, outer_mixed_norm=1.0), "outer_mixed_norm"),
        (lambda: ZERO.evaluate(SAMPLE), "norms > 0"),
    ],
)
def test_impossible_classes_are_refused_by_name(call, words):
    with pytest.raises(InputError, match=words):
        call()
