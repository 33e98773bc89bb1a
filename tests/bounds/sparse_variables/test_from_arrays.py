"""Descriptions measured on weights: the class contains the network, and its constants hold."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti.attention import ProjectedTransformer, TokenReadout
from finetti.attention.lipschitz import network_perturbation
from finetti.attention.networks.projected_transformer import ProjectedLayer
from finetti.bounds import Sample
from finetti.bounds.parameter_count import ParameterCountCovering
from finetti.bounds.sparse_variables import (
    HeadClass,
    MultiHeadClass,
    ProjectedLayerNorms,
    SoftmaxHeadNorms,
    TransformerClass,
)
from finetti.core.errors import InputError


def arrays(rng, d=4, k=3, lead=()):
    shapes = {"query": (d, k), "key": (d, k), "value": (d, k), "output": (k, d)}
    return {name: rng.normal(size=(*lead, *shape)) for name, shape in shapes.items()}


def test_norms_of_a_head_have_the_right_orientation_erratum_9():
    weights = arrays(np.random.default_rng(0))
    head = HeadClass.from_arrays(**weights, activation_lipschitz=1.5, readout_norm=2.0)
    scores = weights["query"] @ weights["key"].T
    values = weights["value"]
    assert (head.width, head.head_dimension, head.readout_norm) == (4, 3, 2.0)
    assert head.value_norm == pytest.approx(np.linalg.norm(values, 2))
    assert head.value_column_norm == pytest.approx(np.sqrt((values**2).sum(axis=0)).max())
    assert head.score_row_norm == pytest.approx(np.sqrt((scores**2).sum(axis=1)).max())
    assert head.out_lipschitz == pytest.approx(1.5 * np.linalg.norm(weights["output"], 2))


@pytest.mark.parametrize("query_width", [40, 2])
def test_in_cross_attention_the_width_is_that_of_the_query(query_width):
    """(W_QKx)_i is one output per row of W_QK; tokens may be padded with zeros at will."""
    rng = np.random.default_rng(10)
    cross = {**arrays(rng), "query": rng.normal(size=(query_width, 3))}
    found = HeadClass.from_arrays(**cross)
    assert found.width == query_width
    padding = ((0, max(query_width - 4, 0)), (0, 0))
    padded = {name: np.pad(cross[name], padding) for name in ("key", "value")}
    assert HeadClass.from_arrays(**{**cross, **padded}) == found
    heads = {name: value[None] for name, value in cross.items()}
    assert MultiHeadClass.from_arrays(**heads).width == query_width


def test_several_heads_are_measured_one_by_one():
    weights = arrays(np.random.default_rng(2), lead=(3,))
    layer = MultiHeadClass.from_arrays(**weights, activation_lipschitz=1.5)
    for index, head in enumerate(layer.heads):
        one = {name: value[index] for name, value in weights.items()}
        single = HeadClass.from_arrays(**one, activation_lipschitz=1.5)
        for name in SoftmaxHeadNorms.__dataclass_fields__:
            assert getattr(head, name) == getattr(single, name)


def test_float32_weights_are_measured_in_float64():
    weights = {
        name: value.astype(np.float32) for name, value in arrays(np.random.default_rng(4)).items()
    }
    found = HeadClass.from_arrays(**weights)
    exact = {name: value.astype(np.float64) for name, value in weights.items()}
    assert found == HeadClass.from_arrays(**exact)


def test_a_deep_network_contains_itself():
    network = ProjectedTransformer.init(jax.random.key(0), 2, dimension=4, head_dimension=3)
    readout = TokenReadout(jnp.ones(4))
    layers = [
        {name: getattr(layer, f"{name}_weights") for name in ("query", "key", "value", "output")}
        for layer in network.layers
    ]
    found = TransformerClass.from_arrays(layers, jnp.ones(4))
    assert (found.width, found.head_dimension, found.readout_norm) == (4, 3, 2.0)
    sample = Sample(n_samples=10, context_length=5, input_norm=2.0)
    tokens = 2.0 * jnp.eye(4)[jnp.array([0, 1, 2, 3, 0])]
    states = network.states(tokens)
    for radius, state in zip(found.radii(sample), states, strict=True):
        assert float(jnp.linalg.norm(state, axis=1).max()) <= radius + 1e-6
    assert abs(float(readout(states[-1]))) <= math.exp(found.log_range(sample)) + 1e-6


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
            TransformerClass.from_arrays(n, r) for n, r in zip((first, second), (w, v), strict=True)
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
            square += sum(((a[n] - b[n]) ** 2).sum() for n in ("value", "output"))
        steep = math.exp(steepness(ParameterCountCovering(bigger), sample))
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
            [ProjectedLayerNorms.from_arrays(**head) for head in a + b]
            for a, b in zip(layers, moved, strict=True)
        ]
        network = TransformerClass(
            layers=tuple(functools.reduce(largest, each) for each in norms), width=4
        )
        steep = math.exp(steepness(ParameterCountCovering(network, n_heads=2), sample))
        square = sum(
            ((scores(a) - scores(b)) ** 2).sum()
            + sum(((a[n] - b[n]) ** 2).sum() for n in ("value", "output"))
            for one, two in zip(layers, moved, strict=True)
            for a, b in zip(one, two, strict=True)
        )
        change = np.abs(added_heads(layers, tokens) - added_heads(moved, tokens))[0, 0]
        assert change <= steep * math.sqrt(square)


def steepness(bound, sample):
    return bound.composed(bound.functions, sample).log_multiplier


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
            inside = ball(weights @ tokens @ head["value"])
            total = total + np.maximum(inside, 0) @ head["output"]
        tokens = ball(total)
    return tokens


def scores(layer):
    return layer["query"] @ layer["key"].T


def largest(one, two):
    return type(one)(**{n: max(getattr(one, n), getattr(two, n)) for n in one.__dataclass_fields__})


def test_what_cannot_be_measured_is_refused_by_name():
    weights = arrays(np.random.default_rng(6))
    with pytest.raises(InputError, match=r"`query` .* an array of 2 axes"):
        HeadClass.from_arrays(**{**weights, "query": np.ones((2, 4, 3))})
    with pytest.raises(InputError, match=r"`key` .* 3 columns"):
        HeadClass.from_arrays(**{**weights, "key": np.ones((4, 2))})
    with pytest.raises(InputError, match=r"`readout` .* one output. Got \(4, 2\)"):
        TransformerClass.from_arrays([weights], np.ones((4, 2)))
    with pytest.raises(InputError, match="finite"):
        HeadClass.from_arrays(**{**weights, "value": np.full((4, 3), np.nan)})
