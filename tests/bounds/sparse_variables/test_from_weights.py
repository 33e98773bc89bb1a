"""Descriptions measured on weights: the class contains the network, and its constants hold."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti.attention import Head, MultiHead, ProjectedTransformer, SelfAttention, TokenReadout
from finetti.attention.lipschitz import amplifications, network_perturbation
from finetti.attention.networks.projected_transformer import ProjectedLayer
from finetti.attention.softmax import Softmax
from finetti.bounds import Sample
from finetti.bounds.parameter_count import ParameterCountCovering
from finetti.bounds.sparse_variables import (
    HeadClass,
    MultiHeadClass,
    TransformerClass,
    log_amplifications,
)
from finetti.core.errors import InputError, UnsupportedError


def arrays(rng, d=4, k=3, lead=()):
    shapes = {"query_weights": (d, k), "key_weights": (d, k), "value_weights": (d, k)}
    shapes["output_weights"] = (k, d)
    return {name: rng.normal(size=(*lead, *shape)) for name, shape in shapes.items()}


def test_norms_of_a_head_have_the_right_orientation_erratum_9():
    weights = arrays(np.random.default_rng(0))
    head = HeadClass.from_weights({**weights, "activation_lipschitz": 1.5}, readout_norm=2.0)
    scores = weights["query_weights"] @ weights["key_weights"].T
    values = weights["value_weights"]
    assert (head.width, head.head_dimension, head.readout_norm) == (4, 3, 2.0)
    assert head.value_norm == pytest.approx(np.linalg.norm(values, 2))
    assert head.value_column_norm == pytest.approx(np.sqrt((values**2).sum(axis=0)).max())
    assert head.score_row_norm == pytest.approx(np.sqrt((scores**2).sum(axis=1)).max())
    assert head.out_lipschitz == pytest.approx(1.5 * np.linalg.norm(weights["output_weights"], 2))


@pytest.mark.parametrize("query_width", [40, 2])
def test_in_cross_attention_the_width_is_that_of_the_query(query_width):
    """(W_QKx)_i is one output per row of W_QK; tokens may be padded with zeros at will."""
    rng = np.random.default_rng(10)
    cross = {**arrays(rng), "query_weights": rng.normal(size=(query_width, 3))}
    found = HeadClass.from_weights(cross)
    assert found.width == query_width
    padding = ((0, max(query_width - 4, 0)), (0, 0))
    padded = {name: np.pad(cross[name], padding) for name in ("key_weights", "value_weights")}
    assert HeadClass.from_weights({**cross, **padded}) == found
    heads = {name: value[None] for name, value in cross.items()}
    assert MultiHeadClass.from_weights(heads).width == query_width


def test_networks_and_arrays_agree():
    weights = arrays(np.random.default_rng(1))
    plain = HeadClass.from_weights(weights)
    head = Head.transformer(*weights.values())
    layer = ProjectedLayer(*weights.values(), activation="relu")
    for other in (head, layer):
        assert HeadClass.from_weights(other).out_lipschitz == pytest.approx(plain.out_lipschitz)
        assert HeadClass.from_weights(other).score_row_norm == pytest.approx(plain.score_row_norm)


def test_heads_in_three_layouts():
    weights = arrays(np.random.default_rng(2), lead=(3,))
    plain = MultiHeadClass.from_weights(weights)
    heads = MultiHead(*weights.values())
    assert len(plain.heads) == 3
    for other in (heads, heads.concatenated(), SelfAttention(heads)):
        found = MultiHeadClass.from_weights(other)
        for one, two in zip(plain.heads, found.heads, strict=True):
            assert one.value_norm == pytest.approx(two.value_norm, rel=1e-12)
            assert one.score_row_norm == pytest.approx(two.score_row_norm, rel=1e-12)


def test_scale_of_the_scores_counts():
    weights = arrays(np.random.default_rng(3), lead=(1,))
    half = MultiHead(*weights.values(), attention=Softmax(scale=0.5))
    full = MultiHead(*weights.values())
    small, large = (MultiHeadClass.from_weights(each).heads[0] for each in (half, full))
    assert small.score_row_norm == pytest.approx(0.5 * large.score_row_norm)


def test_float32_weights_are_measured_in_float64():
    weights = {
        name: value.astype(np.float32) for name, value in arrays(np.random.default_rng(4)).items()
    }
    found = HeadClass.from_weights(weights)
    exact = {name: value.astype(np.float64) for name, value in weights.items()}
    assert found == HeadClass.from_weights(exact)


def test_a_deep_network_contains_itself():
    network = ProjectedTransformer.init(jax.random.key(0), 2, dimension=4, head_dimension=3)
    readout = TokenReadout(jnp.ones(4))
    found = TransformerClass.from_weights(network, readout)
    assert (found.width, found.head_dimension, found.readout_norm) == (4, 3, 2.0)
    sample = Sample(n_samples=10, context_length=5, input_norm=2.0)
    tokens = 2.0 * jnp.eye(4)[jnp.array([0, 1, 2, 3, 0])]
    states = network.states(tokens)
    for radius, state in zip(found.radii(sample), states, strict=True):
        assert float(jnp.linalg.norm(state, axis=1).max()) <= radius + 1e-6
    assert abs(float(readout(states[-1]))) <= math.exp(found.log_range(sample)) + 1e-6


def test_log_amplifications_are_those_of_the_lemmas():
    factors = (0.5, 2.0, 7.0, 3.0)
    for form in ("derived", "printed"):
        logs = log_amplifications([math.log(factor) for factor in factors], form)
        np.testing.assert_allclose(np.exp(logs), amplifications(factors, form), rtol=1e-14)


def test_no_network_moves_more_than_its_class_allows():
    """|out − ôut| ≤ Λ‖ΔW‖_F for the Λ of the parameter count; the chain of A.17 holds."""
    rng = np.random.default_rng(5)
    sample = Sample(n_samples=1, context_length=5, input_norm=1.5)
    tokens = rng.normal(size=(5, 4))
    tokens *= 1.5 / np.linalg.norm(tokens, axis=1).max()
    for draw in range(20):
        first = [arrays(rng) for _ in range(2)]
        step = 10.0 ** rng.uniform(-3, 0)
        second = [
            {name: value + step * rng.normal(size=value.shape) for name, value in layer.items()}
            for layer in first
        ]
        w, v = rng.normal(size=(2, 4))
        networks = [
            ProjectedTransformer([ProjectedLayer(*layer.values()) for layer in layers])
            for layers in (first, second)
        ]
        classes = [
            TransformerClass.from_weights(n, r) for n, r in zip(networks, (w, v), strict=True)
        ]
        bigger = TransformerClass(
            layers=tuple(map(largest, *(each.layers for each in classes))),
            width=4,
            head_dimension=3,
            readout_norm=max(each.readout_norm for each in classes),
        )
        square = float(((w - v) ** 2).sum())
        for a, b in zip(first, second, strict=True):
            square += ((scores(a) - scores(b)) ** 2).sum()
            square += sum(((a[n] - b[n]) ** 2).sum() for n in ("value_weights", "output_weights"))
        steep = math.exp(ParameterCountCovering(bigger).log_lipschitz(sample))
        moved = network_perturbation(*networks, TokenReadout(w), TokenReadout(v), tokens)
        assert float(moved.measured) <= steep * math.sqrt(square), draw
        assert bool(moved.holds)


def test_heads_together_move_no_more_than_the_count_of_parameters_allows():
    """Two added heads between projections, in NumPy; perturbed along one direction at a time."""
    rng = np.random.default_rng(7)
    sample, tokens = Sample(1, 4, input_norm=0.8), rng.normal(size=(5, 4))
    tokens *= 0.8 / np.linalg.norm(tokens, axis=1).max()
    for _ in range(200):
        layers = [[arrays(rng) for _ in range(2)] for _ in range(2)]
        step = 10.0 ** rng.uniform(-4, -1)
        moved = [
            [{n: v + step * rng.normal(size=v.shape) for n, v in head.items()} for head in layer]
            for layer in layers
        ]
        norms = [
            [TransformerClass.from_weights([head]).layers[0] for head in a + b]
            for a, b in zip(layers, moved, strict=True)
        ]
        network = TransformerClass(
            layers=tuple(functools.reduce(largest, each) for each in norms), width=4
        )
        steep = math.exp(ParameterCountCovering(network, n_heads=2).log_lipschitz(sample))
        square = sum(
            ((scores(a) - scores(b)) ** 2).sum()
            + sum(((a[n] - b[n]) ** 2).sum() for n in ("value_weights", "output_weights"))
            for one, two in zip(layers, moved, strict=True)
            for a, b in zip(one, two, strict=True)
        )
        change = np.abs(added_heads(layers, tokens) - added_heads(moved, tokens))[0, 0]
        assert change <= steep * math.sqrt(square)


def ball(tokens):
    return tokens / np.maximum(1.0, np.linalg.norm(tokens, axis=1, keepdims=True))


def added_heads(layers, tokens):
    """g ↦ Π(Σ_h ReLU(Π(f_h(g)))W_C^h); its first coordinate is a readout of length 1."""
    for layer in layers:
        total = 0.0
        for head in layer:
            raw = tokens @ scores(head) @ tokens.T
            weights = np.exp(raw - raw.max(axis=1, keepdims=True))
            weights /= weights.sum(axis=1, keepdims=True)
            inside = ball(weights @ tokens @ head["value_weights"])
            total = total + np.maximum(inside, 0) @ head["output_weights"]
        tokens = ball(total)
    return tokens


def scores(layer):
    return layer["query_weights"] @ layer["key_weights"].T


def largest(one, two):
    return type(one)(**{n: max(getattr(one, n), getattr(two, n)) for n in one.__dataclass_fields__})


def test_what_cannot_be_measured_is_refused_by_name():
    weights = arrays(np.random.default_rng(6), lead=(2,))
    with pytest.raises(InputError, match="an array of 2 axes"):
        HeadClass.from_weights(weights)
    with pytest.raises(InputError, match="weights with `query_weights`"):
        HeadClass.from_weights({"value_weights": np.eye(2)})
    from finetti.attention import ConditionalMean
    from finetti.attention.networks.residual_transformer import ResidualTransformer
    from finetti.kernels import RBF

    other = MultiHead(*weights.values(), attention=ConditionalMean(RBF(), ridge=0.1))
    with pytest.raises(UnsupportedError, match="softmax heads, and these are ConditionalMean"):
        MultiHeadClass.from_weights(other)
    network = ResidualTransformer.init(jax.random.key(0), 1, 1, 4, 8)
    with pytest.raises(UnsupportedError, match="Nearest bound: E-thm-C"):
        TransformerClass.from_weights(network)
