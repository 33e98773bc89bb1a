"""Descriptions measured on weights: the class contains the network, and its constants hold."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from finetti.attention import ProjectedTransformer, TokenReadout
from finetti.bounds import Sample
from finetti.bounds.ours.parameter_count import ParameterCountCovering
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


@pytest.mark.parametrize("n_heads", [1, 2])
def test_no_network_moves_more_than_its_class_allows(n_heads):
    """|out − ôut| ≤ Λ‖ΔW‖_F for the Λ of the parameter count, with added heads, in NumPy."""
    rng = np.random.default_rng(7)
    sample, tokens = Sample(1, 4, input_norm=0.8), rng.normal(size=(5, 4))
    tokens *= 0.8 / np.linalg.norm(tokens, axis=1).max()
    for _ in range(100):
        step = 10.0 ** rng.uniform(-4, 0)
        layers = [[arrays(rng) for _ in range(n_heads)] for _ in range(2)]
        moved = [
            [{n: v + step * rng.normal(size=v.shape) for n, v in head.items()} for head in layer]
            for layer in layers
        ]
        readout = rng.normal(size=4)
        other = readout + step * rng.normal(size=4)
        norms = [
            [ProjectedLayerNorms.from_arrays(**head) for head in a + b]
            for a, b in zip(layers, moved, strict=True)
        ]
        network = TransformerClass(
            layers=tuple(functools.reduce(largest, each) for each in norms),
            width=4,
            head_dimension=3,
            readout_norm=max(np.linalg.norm(readout), np.linalg.norm(other)),
        )
        bound = ParameterCountCovering(network, n_heads=n_heads)
        steep = math.exp(bound.composed(network, sample).log_multiplier)
        square = ((readout - other) ** 2).sum() + sum(
            ((scores(a) - scores(b)) ** 2).sum()
            + sum(((a[n] - b[n]) ** 2).sum() for n in ("value", "output"))
            for one, two in zip(layers, moved, strict=True)
            for a, b in zip(one, two, strict=True)
        )
        change = added_heads(layers, tokens)[0] @ readout - added_heads(moved, tokens)[0] @ other
        assert abs(change) <= steep * math.sqrt(square)


def ball(tokens):
    return tokens / np.maximum(1.0, np.linalg.norm(tokens, axis=1, keepdims=True))


def added_heads(layers, tokens):
    """g ↦ Π(Σ_h ReLU(Π(f_h(g)))W_C^h)."""
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
