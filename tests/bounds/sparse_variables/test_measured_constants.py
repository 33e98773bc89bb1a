"""What `from_weights` must not lose: the head's own Norm, misspelled names, digits, outputs."""

import jax.numpy as jnp
import numpy as np
import pytest

from finetti.attention import Head, TokenReadout
from finetti.attention.networks.head_parts import BilinearScore, LinearMap, Normalization
from finetti.bounds import Sample
from finetti.bounds.sparse_variables import (
    HeadClass,
    HeadCovering,
    HeadSplit,
    MultiHeadClass,
    TransformerClass,
)
from finetti.core.errors import InputError

SAMPLE = Sample(n_samples=1000, context_length=50)


class Steep(Normalization):
    """A Norm that moves seven times as far as softmax; printed as that."""

    def __call__(self, scores, mask=None):
        return jnp.abs(scores)

    def lipschitz(self, form="derived"):
        return 7.0


def layer(rng, d=4, k=3, lead=()):
    shapes = {"query_weights": (d, k), "key_weights": (d, k), "value_weights": (d, k)}
    shapes["output_weights"] = (k, d)
    return {name: rng.normal(size=(*lead, *shape)) for name, shape in shapes.items()}


def test_a_head_brings_the_constant_of_its_own_norm():
    weights = layer(np.random.default_rng(0))
    plain = Head.transformer(*weights.values())
    steep = Head(plain.score, Steep(), plain.phi_in, plain.phi_out)
    assert HeadClass.from_weights(plain).constant == 1.0
    assert HeadClass.from_weights(plain).norm_lipschitz is None  # printed 2 stays possible
    assert HeadClass.from_weights(steep).constant == 7.0
    assert HeadClass.from_weights(steep, norm_lipschitz=3.0).constant == 3.0
    for bound in (HeadCovering, HeadSplit):
        small, large = (bound(HeadClass.from_weights(h)).evaluate(SAMPLE) for h in (plain, steep))
        assert large.value > small.value


def test_several_heads_and_layers_bring_it_too():
    rng = np.random.default_rng(1)
    heads = {**layer(rng, lead=(2,)), "norm": Steep()}
    assert MultiHeadClass.from_weights(heads).constant == 7.0
    layers = [layer(rng), {**layer(rng), "norm_lipschitz": 0.5}]
    assert TransformerClass.from_weights(layers).constant == 1.0  # the first is softmax
    assert TransformerClass.from_weights([{**layers[0], "norm": Steep()}]).constant == 7.0


def test_misspelled_names_are_refused_with_the_known_ones():
    rng = np.random.default_rng(2)
    head, heads = layer(rng), layer(rng, lead=(2,))
    for measured, good in (
        (HeadClass.from_weights, head),
        (MultiHeadClass.from_weights, heads),
        (lambda each: TransformerClass.from_weights([each]), head),
    ):
        wrong = {**good, "output_weight": good["output_weights"]}
        with pytest.raises(InputError, match=r"'output_weight' .* Known names: .*output_weights"):
            measured(wrong)
    with pytest.raises(InputError, match="as `activation_lipschitz`"):
        HeadClass.from_weights({**head, "activation": "relu"})
    with pytest.raises(InputError, match="Known names: layers"):
        TransformerClass.from_weights({"layers": [head], "readout": np.ones(4)})


def test_norms_of_float32_heads_have_float64_digits():
    rng = np.random.default_rng(3)
    single = {name: value.astype(np.float32) for name, value in layer(rng, 16, 8).items()}
    exact = HeadClass.from_weights({n: v.astype(np.float64) for n, v in single.items()})
    score = BilinearScore(*(jnp.asarray(single[n]) for n in ("query_weights", "key_weights")))
    values, outputs = (LinearMap(jnp.asarray(single[f"{n}_weights"])) for n in ("value", "output"))
    found = HeadClass.from_weights(Head(score, Steep(), values, outputs))
    assert found.out_lipschitz == pytest.approx(exact.out_lipschitz, rel=1e-13)
    assert found.score_row_norm == pytest.approx(exact.score_row_norm, rel=1e-13)


def test_a_readout_has_one_output():
    network = [layer(np.random.default_rng(4), d=8)]
    for one in (2 * np.ones(8), 2 * np.ones((8, 1)), TokenReadout(2 * jnp.ones(8))):
        found = TransformerClass.from_weights(network, one)
        assert found.readout_norm == pytest.approx(32**0.5)
    for two in (np.ones((8, 2)), TokenReadout(jnp.ones((8, 2)))):
        with pytest.raises(InputError, match=r"`readout` .* one output. Got shape \(8, 2\)"):
            TransformerClass.from_weights(network, two)
