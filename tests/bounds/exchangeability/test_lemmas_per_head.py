"""Lemmas C.11 to C.13 are sums over heads; (C.5) sums the norms first, for the chain only."""

import math

import numpy as np
import pytest

from finetti.attention.lipschitz.exchangeability import heads_token_constant, heads_weight_bound
from finetti.bounds import Sample
from finetti.bounds import exchangeability as bounds
from finetti.bounds.exchangeability.layer_constants import ChainForm, heads_link
from finetti.core.errors import InputError
from finetti.core.log_number import LogNumber

RADIUS, CHANGE = 1.7, 0.03
SAMPLE = Sample(100, 10, input_norm=RADIUS)


def make_network(seed=0, n_heads=3, **options):
    rng = np.random.default_rng(seed)
    heads = []
    for _ in range(n_heads):
        norms = rng.uniform(0.2, 3.0, size=3)
        heads.append(bounds.FullHeadNorms(*norms, *(norms * rng.uniform(1.0, 4.0, size=3))))
    layer = bounds.FullLayerNorms(tuple(heads))
    return bounds.FullTransformer(4, 6, 2, (layer,), **options)


def columns(network):
    heads = network.layers[0].heads
    return {
        "ov": [h.value_norm for h in heads],
        "oqk": [h.query_norm + h.key_norm for h in heads],
        "rv": [h.value_mixed_norm for h in heads],
        "rqk": [h.query_mixed_norm + h.key_mixed_norm for h in heads],
    }


CASES = [("paper", "derived"), ("paper", "printed"), ("sharp", "derived")]


@pytest.mark.parametrize("bandwidth", [None, 0.25])
@pytest.mark.parametrize(("constants", "form"), CASES)
def test_the_values_are_what_the_statements_say(constants, form, bandwidth):
    network = make_network(bandwidth=bandwidth)
    width = 1 / network.rbf_constant(constants == "sharp")
    n = columns(network)
    moved = heads_weight_bound(
        [CHANGE * r for r in n["rv"]],
        n["oqk"],
        [CHANGE * r for r in n["rqk"]],
        n["ov"],
        RADIUS,
        width,
        form,
    )
    options = {"constants": constants, "form": form}
    found = bounds.HeadsDeviation(network, change=CHANGE, **options).evaluate(SAMPLE)
    assert found.value == pytest.approx(moved, rel=1e-12)

    if form == "derived" or bandwidth is None:  # refused, see test_errata.py
        steep = heads_token_constant(n["ov"], n["oqk"], RADIUS, width, form)
        found = bounds.HeadsTokenConstant(network, **options).evaluate(SAMPLE)
        assert found.value == pytest.approx(steep, rel=1e-12)
        assert sum(term.value for term in found.terms) == pytest.approx(steep, rel=1e-12)

    size = heads_weight_bound(n["rv"], n["oqk"], n["rqk"], n["ov"], RADIUS, width, form)
    found = bounds.HeadsCovering(network, resolution=0.2, **options).evaluate(SAMPLE)
    count = 3 * (2 * 4 * 2 + 4 * 4) if constants == "sharp" else 5 * 6**2
    assert found.value == pytest.approx(count * math.log(1 + 2 * size / 0.2), rel=1e-12)


def test_the_chain_keeps_the_summed_norms():
    network = make_network()
    n = columns(network)
    link = heads_link(
        network.layers[0], LogNumber.from_float(RADIUS), ChainForm.of(network, "derived", False)
    )
    ov, oqk, rv, rqk = sum(n["ov"]), max(n["oqk"]), sum(n["rv"]), sum(n["rqk"])
    assert float(link.constant) == pytest.approx(ov + oqk**2 * ov * RADIUS**2, rel=1e-12)
    assert float(link.scores) == pytest.approx(oqk * rqk * ov * RADIUS**2, rel=1e-12)
    assert float(link.values) == pytest.approx(rv, rel=1e-12)
    assert bounds.HeadsTokenConstant(network).evaluate(SAMPLE).value < float(link.constant)


def test_downstream_weights_outside_the_range_are_refused():
    one, rest = np.eye(3)[:, :1], np.eye(3)[:, 1:]
    for call in (
        bounds.transfer_matrix,
        bounds.transfer_condition_number,
        bounds.TransferApproximation.from_weights,
    ):
        with pytest.raises(InputError, match=r"range of `pretrained`.* 100 %"):
            call(one, rest)
    with pytest.raises(InputError, match="range of `pretrained`"):
        bounds.transfer_condition_number(one, np.zeros((3, 2)))


@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e150])
def test_downstream_weights_in_the_range_pass_at_any_scale(scale):
    rng = np.random.default_rng(1)
    source = rng.normal(size=(6, 3)) * 10.0 ** -np.arange(0, 9, 3)  # condition 10⁶
    target = scale * (source @ rng.normal(size=(3, 2)))
    found = bounds.transfer_matrix(target, scale * source)
    np.testing.assert_allclose(found @ (scale * source).T, target.T, rtol=0, atol=1e-8 * scale)
