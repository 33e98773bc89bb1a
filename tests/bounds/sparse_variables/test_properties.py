"""Monotone in every norm; logarithmic in the context length; equal by two routes."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from finetti.bounds import Sample
from finetti.bounds.covering.dudley import log_confidence
from finetti.bounds.description import NORM
from finetti.bounds.parameter_count import ParameterCountCovering, ParameterCountGap
from finetti.bounds.sparse_variables import (
    CoveringConstantGap,
    HeadClass,
    HeadCovering,
    HeadGap,
    HeadSplit,
    LinearMapCovering,
    MultiHeadClass,
    MultiHeadCovering,
    MultiHeadGap,
    ProjectedLayerNorms,
    ProjectedTransformerCovering,
    ProjectedTransformerGap,
    RefinedMatrixCovering,
    SoftmaxHeadNorms,
    TransformerClass,
    UniformTransformer,
    VectorCovering,
)

size = st.floats(0.01, 100.0)
FEW = settings(max_examples=25)
PLAIN = {"readout_norm": None, "position_norm": 0.0}


def draw_norms(data, kind, **fixed):
    names = [each.name for each in fields(kind) if each.metadata.get(NORM)]
    drawn = {name: data.draw(size, label=name) for name in names}
    return kind(**{**drawn, **fixed})


def draw_class(data, kind):
    if kind is HeadClass:
        return draw_norms(data, HeadClass, width=6, head_dimension=3, positions="fixed")
    if kind is MultiHeadClass:
        heads = tuple(draw_norms(data, SoftmaxHeadNorms) for _ in range(2))
        return draw_norms(data, kind, heads=heads, width=6, head_dimension=3, positions="fixed")
    layers = tuple(draw_norms(data, ProjectedLayerNorms) for _ in range(2))
    return draw_norms(data, kind, layers=layers, width=6, head_dimension=3, positions="fixed")


def draw_sample(data, least=1):
    m = data.draw(st.integers(least, 10**15), label="m")
    return Sample(m, data.draw(st.integers(1, 10**6), label="T"), data.draw(size, label="B_X"))


CLASSES = [
    (HeadCovering, HeadClass),
    (HeadGap, HeadClass),
    (MultiHeadCovering, MultiHeadClass),
    (MultiHeadGap, MultiHeadClass),
    (ProjectedTransformerCovering, TransformerClass),
    (ProjectedTransformerGap, TransformerClass),
    (ParameterCountCovering, TransformerClass),
    (ParameterCountGap, TransformerClass),
]


@pytest.mark.parametrize(("bound", "kind"), CLASSES)
@FEW
@given(data=st.data())
def test_monotone_in_every_norm(bound, kind, data):
    built = bound(draw_class(data, kind))
    for row in built.sensitivity(draw_sample(data)):
        assert row.log_ratio >= 0, row.field


@pytest.mark.parametrize(
    "bound",
    [
        VectorCovering(),
        LinearMapCovering(outputs=4),
        RefinedMatrixCovering(outputs=4),
        CoveringConstantGap(),
        UniformTransformer(n_layers=3, width=4),
    ],
    ids=lambda bound: bound.name,
)
@FEW
@given(data=st.data())
def test_simple_bounds_are_monotone_in_every_norm(bound, data):
    names = [each.name for each in fields(bound) if each.metadata.get(NORM)]
    built = replace(bound, **{name: data.draw(size, label=name) for name in names})
    sample = replace(draw_sample(data), input_norm=data.draw(st.floats(0.01, 0.9)))
    assert all(row.log_ratio >= 0 for row in built.sensitivity(sample))


@pytest.mark.parametrize(("bound", "kind"), CLASSES)
@FEW
@given(data=st.data())
def test_more_data_and_less_confidence_help(bound, kind, data):
    built, sample = bound(draw_class(data, kind)), draw_sample(data)
    value = built.evaluate(sample).log_value
    more = replace(sample, n_samples=2 * sample.n_samples)
    if built.quantity == "generalization gap":
        assert built.evaluate(more).log_value <= value + 1e-12
        assert built.evaluate(replace(sample, delta=0.2)).log_value <= value
    else:  # more points to be near on
        assert built.evaluate(more).log_value >= value
        assert replace(built, resolution=0.2).evaluate(sample).log_value <= value
    longer = replace(sample, context_length=10 * sample.context_length)
    assert built.evaluate(longer).log_value >= value - 1e-12


@FEW
@given(data=st.data())
def test_split_is_the_better_closed_form(data):
    head = draw_norms(data, HeadClass, width=6, head_dimension=3, **PLAIN)
    sample = draw_sample(data)
    split, closed = (each(head).evaluate(sample).log_value for each in (HeadSplit, HeadCovering))
    assert closed - 0.1 <= split <= closed + 1e-12


@FEW
@given(data=st.data())
def test_leading_part_of_the_split_is_the_closed_form(data):
    """γ³ of Lemma A.8 is the minimum over α of c_QK²/α² + c_V²/(1 − α)², taken numerically."""
    head = draw_norms(data, HeadClass, width=6, head_dimension=3, norm_lipschitz=2.0, **PLAIN)
    sample = draw_sample(data)
    split = HeadSplit(head, form="printed").evaluate(sample).log_value
    gamma = head.composition(sample, "derived").log_gamma
    log_points = math.log(sample.log_samples + sample.log_context) if sample.n_samples > 1 else None
    if log_points is not None:
        assert split == pytest.approx(3 * gamma - 2 * math.log(0.1) + log_points, abs=1e-12)


DECADES = [10**k for k in range(2, 9)]  # of tokens, [CLS] among them


@pytest.mark.parametrize(
    ("bound", "make"), [(HeadCovering, "head"), (ProjectedTransformerCovering, "network")]
)
def test_log_covering_number_is_affine_in_log_context(bound, make, request):
    functions = request.getfixturevalue(f"make_{make}")()
    for form, tolerance in (("printed", 1e-12), ("derived", 1e-6)):
        # The derived form counts [CLS] in a deep network, the printed one never does.
        extra = form == "derived" and bound is ProjectedTransformerCovering
        samples = [Sample(1000, length - extra) for length in DECADES]
        values = [bound(functions, form=form).evaluate(each).value for each in samples]
        steps = np.diff(values)
        assert np.ptp(steps) <= tolerance * steps.mean()
        assert (steps > 0).all()


def test_gap_grows_no_faster_than_the_root_of_log_context(make_head):
    bound = HeadGap(make_head(readout_norm=1.0))
    start = bound.complexity(Sample(10**12, 10)).log_value
    for power in (2, 4, 8):
        grown = bound.complexity(Sample(10**12, 10**power)).log_value
        assert start < grown <= start + math.log(power) / 2


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


def test_confidence_halves_with_four_times_the_sample():
    for form in ("derived", "printed"):
        few, many = (log_confidence(Sample(n, 1), form) for n in (100, 400))
        assert few - many == pytest.approx(math.log(2), abs=1e-14)


def test_shares_add_up(make_network, sample):
    for bound in (
        ProjectedTransformerCovering(make_network()),
        ProjectedTransformerGap(make_network()),
    ):
        value = bound.evaluate(sample)
        assert sum(term.share for term in value.terms) == pytest.approx(1, abs=1e-12)
        total = math.fsum(term.value for term in value.terms)
        assert total == pytest.approx(value.value, rel=1e-12)
