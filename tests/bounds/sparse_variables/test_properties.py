"""The split at its best; logarithmic in the context length; equal by two routes; refusals."""

import math
from dataclasses import replace

import numpy as np
import pytest

from finetti.bounds import BoundSettings, Sample
from finetti.bounds.ours.parameter_count import ParameterCountCovering, ParameterCountGap
from finetti.bounds.sparse_variables import (
    HeadClass,
    HeadCovering,
    HeadGap,
    HeadSplit,
    MultiHeadClass,
    MultiHeadCovering,
    ProjectedLayerNorms,
    ProjectedTransformerCovering,
    ProjectedTransformerGap,
    SoftmaxHeadNorms,
    TransformerClass,
    UniformTransformer,
)
from finetti.core.errors import InputError, UnsupportedError

PLAIN = {"width": 6, "head_dimension": 3, "norm_lipschitz": 2.0}


@pytest.mark.parametrize("seed", range(25))
def test_leading_part_of_the_split_is_the_closed_form(seed):
    """γ³ of Lemma A.8 is the minimum over α of c_QK²/α² + c_V²/(1 − α)², taken numerically."""
    rng = np.random.default_rng(seed)
    names = SoftmaxHeadNorms.__dataclass_fields__
    head = HeadClass(**{name: float(10 ** rng.uniform(-2, 2)) for name in names}, **PLAIN)
    sample = Sample(10 ** int(rng.integers(1, 16)), 10**3, float(10 ** rng.uniform(-2, 2)))
    split = HeadSplit(head, form="printed").evaluate(sample).log_value
    gamma = head.composition(sample, "derived").log_gamma
    log_points = math.log(sample.log_samples + sample.log_context)
    assert split == pytest.approx(3 * gamma - 2 * math.log(0.1) + log_points, abs=1e-12)


def test_equal_heads_multiply_by_their_cube(sample):
    def gamma(count):
        layer = MultiHeadClass(heads=(SoftmaxHeadNorms(),) * count, width=4)
        return layer.composition(sample, "derived").log_gamma

    assert 3 * (gamma(5) - gamma(1)) == pytest.approx(3 * math.log(5), abs=1e-12)


def test_one_head_is_a_layer_of_one(make_head, sample):
    head = make_head()
    layer = MultiHeadClass(heads=(head,), width=8)
    one, many = HeadCovering(head).evaluate(sample), MultiHeadCovering(layer).evaluate(sample)
    assert one.log_value == many.log_value


def test_uniform_is_a_relaxation_of_the_deep_theorem(sample):
    sample = replace(sample, input_norm=0.7)
    for norm in (0.3, 1.0, 1.4):
        layers = (
            ProjectedLayerNorms(**dict.fromkeys(ProjectedLayerNorms.__dataclass_fields__, norm)),
        ) * 3
        deep = ProjectedTransformerCovering(TransformerClass(layers=layers, width=4), 0.2)
        uniform = UniformTransformer(
            n_layers=3, width=4, spectral_norm=norm, column_norm=norm, resolution=0.2
        )
        assert deep.evaluate(sample).log_value <= uniform.evaluate(sample).log_value


def test_depth_costs_even_with_unit_norms_and_not_as_printed():
    def log_value(depth, form="derived"):
        bound = UniformTransformer(n_layers=depth, width=4, form=form)
        return bound.evaluate(Sample(10, 10)).log_value

    assert log_value(1, "printed") == log_value(100, "printed")  # what print promises
    assert log_value(100) - log_value(1) > 2 * 99 * math.log(3)


def test_positions_of_the_settings_are_fixed_and_make_tokens_longer():
    plain = HeadCovering(HeadClass(width=4)).evaluate(Sample(10, 10, input_norm=1.5))
    named = HeadCovering.from_settings(BoundSettings(width=4, norms={"position_norm": 0.5}))
    assert named.evaluate(Sample(10, 10, input_norm=1.0)).log_value == plain.log_value


@pytest.mark.parametrize("bound", [ProjectedTransformerCovering, ProjectedTransformerGap])
def test_a_described_class_that_the_theorem_does_not_cover(bound):
    def network(**fields):
        return TransformerClass(layers=(ProjectedLayerNorms(),) * 2, width=4, **fields)

    for fields_, words in (
        ({"normalization": "layer_norm"}, r"LayerNorm.*Lipschitz.*bound: F-chain-blocks"),
        ({"normalization": "none"}, r"has none.*Nearest bound: E-(lemma-C.8|thm-C.5)"),
        ({"positions": "trained"}, r"T·d parameters, a factor linear in T.*parameter-"),
    ):
        with pytest.raises(UnsupportedError, match=words):
            bound(network(**fields_))


def test_other_refusals():
    with pytest.raises(InputError, match="readout_norm"):
        HeadGap(HeadClass(width=4))
    with pytest.raises(UnsupportedError, match=r"at most 1.*erratum 10.*S-thm-A.17"):
        UniformTransformer(n_layers=2, width=4).evaluate(Sample(10, 10, input_norm=1.5))
    with pytest.raises(InputError, match="'fixed' where there is a `position_norm`"):
        HeadClass(width=4, position_norm=1.0)
    with pytest.raises(InputError, match="normalization"):
        TransformerClass(layers=(ProjectedLayerNorms(),), width=4, normalization="batch_norm")


def test_a_trained_table_costs_a_factor_linear_in_the_context():
    layers = (ProjectedLayerNorms(),) * 2
    network = TransformerClass(layers=layers, width=4, positions="trained", position_norm=1.0)
    table = ParameterCountCovering(network)
    ball = table.composed(table.functions, Sample(1000, 100))
    assert sum(ball.parameters) == 2 * 3 * 16 + 4 + 100 * 4
    # Through both layers, with tokens of length B_X + B_P = 2, then 1: (1 + 2·2²)(1 + 2·1²).
    assert ball.parts[-1].log_multiplier == pytest.approx(math.log(27), rel=1e-12)
    few, many = (table.evaluate(Sample(1000, t)).value for t in (10**5, 10**6))
    assert many / few > 9
    with pytest.raises(InputError, match=r"`position_norm` .* longest trained position"):
        ParameterCountCovering(replace(network, position_norm=0.0))


def test_the_parameter_count_takes_constants_of_the_user():
    layer_norm = TransformerClass(
        layers=(ProjectedLayerNorms(),), width=4, normalization="layer_norm"
    )
    for skips, nearest in (
        (True, r"F-chain-blocks\."),
        (False, "parameter-count, with `lipschitz` and `output_range` of your own"),
    ):
        with pytest.raises(UnsupportedError, match=f"unit ball where .*Nearest bound: {nearest}"):
            ParameterCountCovering(layer_norm, skips=skips)
    free = ParameterCountCovering(layer_norm, lipschitz=1e3, output_range=10.0)
    assert math.isfinite(free.evaluate(Sample(1000, 100)).log_value)


def test_a_thousand_layers_do_not_overflow():
    names = ProjectedLayerNorms.__dataclass_fields__
    layers = (ProjectedLayerNorms(**dict.fromkeys(names, 1e3)),) * 1000
    deep = TransformerClass(layers=layers, width=10**6, readout_norm=1e3)
    sample = Sample(n_samples=10**6, context_length=10**6, input_norm=1e3)
    value = ProjectedTransformerCovering(deep).evaluate(sample)
    assert (value.value, value.log_value > 1e4) == (math.inf, True)
    for bound in (ProjectedTransformerGap(deep), ParameterCountGap(deep)):
        assert math.isfinite(bound.evaluate(sample).log_value)
    # A root is found by sixty evaluations: at fewer layers, as far beyond floats.
    needed = ProjectedTransformerGap(replace(deep, layers=layers[:300])).samples_needed(0.1, sample)
    assert 1e4 < needed.log_value < math.inf
    assert needed.text.startswith("10^")
