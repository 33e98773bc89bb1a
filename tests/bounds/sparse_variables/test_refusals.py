"""Classes that a theorem does not cover are refused by name; sizes beyond float64 are not."""

import math
import subprocess
import sys
from dataclasses import replace

import pytest

from finetti.bounds import Sample
from finetti.bounds.parameter_count import ParameterCountCovering, ParameterCountGap
from finetti.bounds.sparse_variables import (
    CoveringConstantGap,
    HeadClass,
    HeadCovering,
    HeadGap,
    HeadSplit,
    ProjectedLayerNorms,
    ProjectedTransformerCovering,
    ProjectedTransformerGap,
    SoftmaxHeadNorms,
    TransformerClass,
    UniformTransformer,
)
from finetti.core.errors import InputError, UnsupportedError

SAMPLE = Sample(n_samples=1000, context_length=100)


def network(**fields):
    return TransformerClass(layers=(ProjectedLayerNorms(),) * 2, width=4, **fields)


@pytest.mark.parametrize("bound", [ProjectedTransformerCovering, ProjectedTransformerGap])
def test_layer_norm_is_no_projection(bound):
    with pytest.raises(UnsupportedError, match=r"LayerNorm.*Lipschitz.*bound: F-chain-blocks"):
        bound(network(normalization="layer_norm"))
    with pytest.raises(UnsupportedError, match=r"has none.*Nearest bound: E-(lemma-C.8|thm-C.5)"):
        bound(network(normalization="none"))


def test_trained_positions_cost_a_factor_linear_in_the_context():
    with pytest.raises(UnsupportedError, match=r"T·d parameters, a factor linear in T.*parameter-"):
        ProjectedTransformerCovering(network(positions="trained"))
    with pytest.raises(UnsupportedError, match="linear in T"):
        HeadCovering(HeadClass(width=4, positions="trained"))
    with pytest.raises(UnsupportedError, match="linear in T"):
        HeadSplit(HeadClass(width=4, positions="trained"))
    # The nearest bound that applies does.
    table = ParameterCountCovering(network(positions="trained", position_norm=1.0))
    ball = table.composed(table.functions, SAMPLE)
    assert sum(ball.parameters) == 2 * 3 * 16 + 4 + 100 * 4
    few, many = (table.evaluate(Sample(1000, t)).value for t in (10**5, 10**6))
    assert many / few > 9
    with pytest.raises(InputError, match=r"`position_norm` .* longest trained position"):
        ParameterCountCovering(network(positions="trained"))


@pytest.mark.parametrize(
    "bound",
    [
        HeadGap(HeadClass(width=4, readout_norm=1.0)),
        ProjectedTransformerGap(network()),
        CoveringConstantGap(),
        ParameterCountGap(network()),
    ],
    ids=lambda bound: bound.name,
)
def test_unbounded_loss(bound):
    with pytest.raises(UnsupportedError, match=r"a bounded loss.*clip it"):
        bound.evaluate(Sample(n_samples=10, context_length=10, loss_bound=math.inf))


def test_other_refusals():
    with pytest.raises(InputError, match="readout_norm"):
        HeadGap(HeadClass(width=4))
    with pytest.raises(UnsupportedError, match=r"at most 1.*erratum 10.*S-thm-A.17"):
        UniformTransformer(n_layers=2, width=4).evaluate(Sample(10, 10, input_norm=1.5))
    with pytest.raises(UnsupportedError, match="no printed form"):
        ParameterCountGap(network(), form="printed")
    with pytest.raises(InputError, match="'fixed' where there is a `position_norm`"):
        HeadClass(width=4, position_norm=1.0)
    with pytest.raises(InputError, match="normalization"):
        network(normalization="batch_norm")
    with pytest.raises(InputError, match="value_norm"):
        HeadClass(width=4, value_norm=math.nan)
    for skips, nearest in (
        (True, r"F-chain-blocks\."),
        (False, "parameter-count, with `lipschitz` and `output_range` of your own"),
    ):
        with pytest.raises(UnsupportedError, match=f"unit ball where .*Nearest bound: {nearest}"):
            ParameterCountCovering(network(normalization="layer_norm"), skips=skips)
    free = ParameterCountCovering(
        network(normalization="layer_norm"), lipschitz=1e3, output_range=10.0
    )
    assert math.isfinite(free.evaluate(SAMPLE).log_value)


def test_nothing_overflows():
    layers = (
        ProjectedLayerNorms(**dict.fromkeys(ProjectedLayerNorms.__dataclass_fields__, 1e3)),
    ) * 1000
    deep = TransformerClass(layers=layers, width=10**6, readout_norm=1e3)
    sample = Sample(n_samples=10**6, context_length=10**6, input_norm=1e3)
    bounds = [
        *(ProjectedTransformerCovering(deep, form=form) for form in ("derived", "printed")),
        *(ProjectedTransformerGap(deep, form=form) for form in ("derived", "printed")),
        ParameterCountCovering(deep),
        ParameterCountGap(deep),
    ]
    for bound in bounds:
        value = bound.evaluate(sample)
        assert math.isfinite(value.log_value)
        assert str(value)
    assert bounds[0].evaluate(sample).value == math.inf
    assert bounds[0].evaluate(sample).log_value > 1e4
    # A root is found by sixty evaluations: at fewer layers, as far beyond floats.
    needed = ProjectedTransformerGap(replace(deep, layers=layers[:300])).samples_needed(0.1, sample)
    assert 1e4 < needed.log_value < math.inf
    assert needed.text.startswith("10^")


@pytest.mark.parametrize("silent", ["value_norm", "value_column_norm", "score_row_norm", "all"])
def test_matrices_of_norm_zero_cost_nothing(silent):
    names = SoftmaxHeadNorms.__dataclass_fields__ if silent == "all" else (silent,)
    head = HeadClass(width=3, readout_norm=1.0, **dict.fromkeys(names, 0.0))
    layer = dict.fromkeys(
        ProjectedLayerNorms.__dataclass_fields__ if silent == "all" else (silent,), 0.0
    )
    deep = TransformerClass(layers=(ProjectedLayerNorms(**layer),) * 2, width=3)
    for bound in (
        HeadCovering(head),
        HeadGap(head),
        HeadGap(head, form="printed"),
        HeadSplit(replace(head, readout_norm=None)),
        ProjectedTransformerCovering(deep),
        ProjectedTransformerGap(deep),
        ParameterCountCovering(deep),
        ParameterCountGap(deep),
    ):
        value = bound.evaluate(SAMPLE)
        assert not math.isnan(value.log_value)
        assert str(value)
        # What costs nothing is only the confidence term, or no cover at all.
        if silent == "all" and bound.quantity == "log covering number":
            assert value.value == 0


def test_no_jax_is_loaded():
    code = (
        "import sys\n"
        "from finetti.bounds import Sample, BoundSettings, load_bounds\n"
        "sample = Sample(n_samples=1000, context_length=50)\n"
        "for bound in load_bounds():\n"
        "    if bound.paper in 'S':\n"
        "        built = bound.from_settings(BoundSettings(width=4))\n"
        "        built.evaluate(sample), built.sensitivity(sample)\n"
        "print(sorted({'jax', 'equinox'} & set(sys.modules)))"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.stdout == "[]\n", done.stderr
