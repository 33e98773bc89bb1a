"""Pieces of real blocks: constants by hand, radii, composition, activations."""

import math

import numpy as np
import pytest
from scipy import optimize, special

from finetti.attention.networks.activations import ACTIVATIONS
from finetti.bounds import BoundSettings, Sample
from finetti.bounds.ours import (
    AttentionPiece,
    BlockNetwork,
    BlockNorms,
    BlocksCovering,
    BlockShape,
    ComponentBound,
    EmbeddingPiece,
    FeedForwardPiece,
    GainWeights,
    GatedPiece,
    LinearPiece,
    MatrixWeights,
    NormalizationPiece,
    ProductHeadPiece,
    ResidualPiece,
    RotaryHeadPiece,
    RowWeights,
    compose_pieces,
)
from finetti.bounds.ours.block_components import SLOPES, log_slope
from finetti.core.errors import InputError


def matrix(norm, rows=4, columns=4):
    return MatrixWeights(rows=rows, columns=columns, norm=norm)


def row(norm, columns=4):
    return RowWeights(rows=1, columns=columns, norm=norm)


def gain(norm, columns=4):
    return GainWeights(rows=1, columns=columns, norm=norm)


def read(passage):
    """Lip, radius, and the multiplier of every weight, as numbers."""
    factors = {each.name: math.exp(each.log_factor) for each in passage.parts}
    return math.exp(passage.log_lipschitz), math.exp(passage.log_radius), factors


FUNCTIONS = {
    "identity": lambda x: x,
    "relu": lambda x: max(x, 0.0),
    "tanh": math.tanh,
    "gelu": lambda x: x * special.ndtr(x),
    "gelu_tanh": lambda x: x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x * special.expit(x),
}


@pytest.mark.parametrize("name", SLOPES)
def test_slopes_of_activations_by_maximization(name):
    """The constant is the largest slope, rounded up in the sixth digit; |σ(x)| ≤ |x|."""
    function, h = FUNCTIONS[name], 1e-4

    def slope(x):
        return abs(function(x + h) - function(x - h)) / (2 * h)

    grid = np.linspace(-8, 8, 1601)
    start = grid[np.argmax([slope(x) for x in grid])]
    around = (start - 0.02, start + 0.02)
    found = optimize.minimize_scalar(lambda x: -slope(x), bounds=around, method="bounded")
    largest = max(-found.fun, slope(start))
    constant = math.exp(log_slope(name))
    assert largest <= constant + 1e-10
    assert constant <= largest + 2e-6
    assert all(abs(function(x)) <= abs(x) + 1e-15 for x in grid)
    if name in ACTIVATIONS:
        assert constant == pytest.approx(ACTIVATIONS[name].lipschitz, abs=1e-6)


def test_constants_of_normalization():
    piece = NormalizationPiece(gain=gain(1.5, 16), shift=row(0.5, 16), epsilon=1e-4)
    for log_radius in (-5.0, 0.0, 300.0):
        lipschitz, radius, factors = read(piece.propagate(log_radius))
        assert lipschitz == pytest.approx(150)
        assert radius == pytest.approx(4 * 1.5 + 0.5)
        assert factors == pytest.approx({"gain": 4.0, "shift": 1.0})


def test_rotary_head_is_the_product_head_of_its_norms():
    rotary = RotaryHeadPiece(
        query=matrix(2.0, 4, 9), key=matrix(3.0, 4, 9), mixing=matrix(1.5),
        query_bias=row(0.5, 9), key_bias=row(0.25, 9),
    )  # fmt: skip
    bias = (3 * 0.5 + 2 * 0.25) / 3
    product = ProductHeadPiece(score=matrix(2 * 3 / 3), mixing=matrix(1.5), score_bias=row(bias))
    lipschitz, radius, factors = read(rotary.propagate(math.log(2.0)))
    assert (lipschitz, radius) == pytest.approx(read(product.propagate(math.log(2.0)))[:2])
    reach, query, key = 1.5 * 2 / 3, 2 * 2 + 0.5, 3 * 2 + 0.25
    by_hand = {
        "W_Q": reach * 2 * key, "W_K": reach * 2 * query,
        "bias of W_Q": reach * key, "bias of W_K": reach * query, "W_VO": 2,
    }  # fmt: skip
    assert factors == pytest.approx(by_hand)
    scaled = RotaryHeadPiece(query=matrix(1.0), key=matrix(1.0), mixing=matrix(1.0), scale=2.0)
    assert read(scaled.propagate(0.0))[0] == pytest.approx(1 + 2 * 2)


def test_heads_add_and_are_numbered():
    head = ProductHeadPiece(score=matrix(0.5), mixing=matrix(3.0))
    one, _, _ = read(head.propagate(0.0))
    lipschitz, radius, factors = read(
        AttentionPiece(heads=(head,) * 3, bias=row(2.0)).propagate(0.0)
    )
    assert (lipschitz, radius) == pytest.approx((3 * one, 3 * 3 + 2))
    assert [*factors][:2] == ["W_QK, head 1", "W_VO, head 1"]
    assert factors["bias of attention"] == 1


def test_constants_of_feed_forward_and_gated_parts():
    feed = FeedForwardPiece(
        inner=matrix(2.0, 4, 8), outer=matrix(3.0, 8, 4), inner_bias=row(0.5, 8),
        outer_bias=row(0.25), activation="silu",
    )  # fmt: skip
    lipschitz, radius, factors = read(feed.propagate(math.log(2.0)))
    assert lipschitz == pytest.approx(1.09984 * 6)
    assert radius == pytest.approx(3 * 4.5 + 0.25)
    by_hand = {
        "W_in": 1.09984 * 3 * 2, "bias of W_in": 1.09984 * 3, "W_out": 4.5, "bias of W_out": 1,
    }  # fmt: skip
    assert factors == pytest.approx(by_hand)
    gated = GatedPiece(
        gate=matrix(2.0, 4, 8), up=matrix(3.0, 4, 8), down=matrix(5.0, 8, 4),
        gate_bias=row(0.5, 8), up_bias=row(0.25, 8), down_bias=row(1.0), activation="silu",
    )  # fmt: skip
    gate, up = 2 * 2 + 0.5, 3 * 2 + 0.25
    lipschitz, radius, factors = read(gated.propagate(math.log(2.0)))
    assert lipschitz == pytest.approx(5 * (3 * gate + 1.09984 * 2 * up))
    assert radius == pytest.approx(5 * gate * up + 1)
    assert factors["W_gate"] == pytest.approx(5 * 1.09984 * up * 2)
    assert factors["W_up"] == pytest.approx(5 * gate * 2)
    assert factors["W_down"] == pytest.approx(gate * up)


def test_constants_of_residuals_with_normalization_before_or_after():
    norm = NormalizationPiece(gain=gain(1.0, 4), epsilon=0.25)
    part = LinearPiece(matrix=matrix(3.0))
    plain, radius, _ = read(ResidualPiece(piece=part).propagate(math.log(2.0)))
    assert (plain, radius) == pytest.approx((4, 8))
    pre = ResidualPiece(piece=part, normalization=norm, layer=7)
    lipschitz, radius, factors = read(pre.propagate(math.log(2.0)))
    assert (lipschitz, radius) == pytest.approx((1 + 3 * 2, 2 + 3 * 2))
    assert factors == pytest.approx({"gain": 3 * 2, "W": 2})
    assert {each.layer for each in pre.propagate(0.0).parts} == {7}
    post = ResidualPiece(piece=part, normalization=norm, order="post")
    lipschitz, radius, factors = read(post.propagate(math.log(2.0)))
    assert (lipschitz, radius) == pytest.approx((2 * (1 + 3), 2))
    assert factors == pytest.approx({"W": 2 * 2, "gain": 2})


def test_multipliers_are_what_comes_after():
    pieces = tuple(LinearPiece(matrix=matrix(norm), name=f"W{norm:g}") for norm in (2.0, 3.0, 5.0))
    lipschitz, radius, factors = read(compose_pieces(pieces, math.log(7.0)))
    assert (lipschitz, radius) == pytest.approx((30, 210))
    assert factors == pytest.approx({"W2": 15 * 7, "W3": 5 * 14, "W5": 42})
    parts = compose_pieces(pieces, math.log(7.0)).parts
    assert [math.exp(each.log_multiplier) for each in parts] == pytest.approx([15, 5, 1])
    assert [math.exp(each.log_radius) for each in parts] == pytest.approx([7, 14, 42])


def test_embeddings_come_first_and_forget_what_is_before():
    tables = (RowWeights(rows=100, columns=4, norm=0.5), RowWeights(rows=20, columns=4, norm=0.2))
    embedding = EmbeddingPiece(tables=tables)
    readout = LinearPiece(matrix=matrix(3.0, 4, 1), name="w")
    network = BlockNetwork(pieces=(embedding, readout))
    lipschitz, radius, factors = read(network.propagate_tokens(Sample(1, 1, input_norm=100.0)))
    assert (lipschitz, radius) == pytest.approx((3, 3 * 0.7))
    assert factors == pytest.approx({"embedding 1": 3, "embedding 2": 3, "w": 0.7})
    with pytest.raises(InputError, match="only first"):
        BlockNetwork(pieces=(readout, embedding))
    with pytest.raises(InputError, match="RowWeights"):
        EmbeddingPiece(tables=())
    with pytest.raises(InputError, match="HeadPiece"):
        AttentionPiece(heads=())


def test_products_beyond_floats():
    block = ResidualPiece(piece=FeedForwardPiece(inner=matrix(1e60), outer=matrix(1e60)))
    passage = compose_pieces((block,) * 20, 0.0)
    assert passage.log_lipschitz / math.log(10) == pytest.approx(2400, abs=2)
    network = BlockNetwork(pieces=(block,) * 20)
    assert math.isfinite(BlocksCovering(network, 1e-3).evaluate(Sample(1, 1)).log_value)


def test_settings_describe_alike_blocks():
    norms = {"hidden_dimension": 12, "gated": True, "order": "post", "activation": "silu"}
    layers = [{"score_norm": 2.0}, {}]
    settings = BoundSettings(n_layers=2, width=8, n_heads=2, norms={**norms, "layers": layers})
    found = BlockNetwork.from_settings(settings)
    shape = BlockShape(
        width=8, hidden_dimension=12, n_heads=2, head_dimension=4, order="post", gated=True,
        activation="silu",
    )  # fmt: skip
    assert found == BlockNetwork(pieces=shape.network((BlockNorms(score_norm=2.0), BlockNorms())))
    names = [each.name for each in found.propagate_tokens(Sample(1, 1)).parts]
    assert names.count("W_gate") == 2
    assert names[-1] == "w"
    BlockNetwork.check_names(settings.norms, "it")
    with pytest.raises(InputError, match="order"):
        BlockNetwork.from_settings(BoundSettings(norms={"order": "sideways"}))


def test_composing_many_pieces_touches_every_weight_once(monkeypatch):
    touched = 0
    carried = ComponentBound.amplified

    def counting(self, log_by):
        nonlocal touched
        touched += len(self.parts)
        return carried(self, log_by)

    monkeypatch.setattr(ComponentBound, "amplified", counting)
    matrix = MatrixWeights(rows=2, columns=2, norm=2.0)
    found = compose_pieces([LinearPiece(matrix=matrix)] * 200, 0.0)
    later = np.arange(199, -1, -1) * math.log(2.0)
    np.testing.assert_allclose([each.log_multiplier for each in found.parts], later, rtol=1e-12)
    assert len(found.parts) == 200 <= touched <= 400
