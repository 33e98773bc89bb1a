"""Where print and proof differ: the printed form fails or differs, the derived one holds."""

import math
from dataclasses import replace

import numpy as np
import pytest

from finetti.bounds import BoundSettings
from finetti.bounds import exchangeability as bounds
from finetti.bounds.exchangeability.chain import ChainForm, log_deviation
from finetti.bounds.sample import Sample
from finetti.core.errors import InputError, UnsupportedError

SAMPLE = Sample(1000, 20)


def test_erratum_3_print_does_not_see_the_ridge():
    errors = [bounds.ConditionalMeanError(ridge, 5.0, source_norm=1e-9) for ridge in (1e-1, 1e-3)]
    derived = [bound.evaluate(SAMPLE).value for bound in errors]
    printed = [replace(bound, form="printed").evaluate(SAMPLE) for bound in errors]
    assert derived[1] > 50 * derived[0]
    assert printed[0].terms[0].log_value == printed[1].terms[0].log_value
    assert printed[0].kind == "scaling"


@pytest.mark.parametrize(
    ("bound", "kind"),
    [
        (bounds.HeadsDeviation, "unproven"),
        (bounds.TransformerDeviation, "unproven"),
        (bounds.HeadsCovering, "unproven"),
        (bounds.FullTransformerCovering, "unproven"),
        (bounds.TransformerComplexity, "unproven"),
        (bounds.FullTransformerGap, "unproven"),
        (bounds.FeedForwardCovering, "upper_bound"),
        (bounds.HeadsTokenConstant, "upper_bound"),
    ],
)
def test_print_that_rests_on_an_erratum_is_no_upper_bound(bound, kind):
    found = bound(bounds.FullTransformer.uniform(8), form="printed").evaluate(SAMPLE)
    assert found.kind == kind
    assert any("errata 5, 6 and 9" in note for note in found.notes) == (kind == "unproven")
    assert found.vacuous is None


@pytest.mark.parametrize("constant", [None, 1.0])
def test_print_that_rests_on_an_erratum_is_not_inverted(constant):
    printed = bounds.FullTransformerGap(bounds.FullTransformer.uniform(8), form="printed")
    with pytest.raises(UnsupportedError, match=r"E-thm-C.5 .printed. is unproven.*derived"):
        printed.samples_needed(0.5, SAMPLE, constant)
    assert printed.evaluate(SAMPLE).compare(0.1).obeyed is None


def test_print_of_c_13_is_for_the_printed_bandwidth():
    """c of Lemma F.1 is 4 at σ² = 1/4, and print has 1."""
    narrow = bounds.FullTransformer.uniform(8, bandwidth=0.25)
    with pytest.raises(UnsupportedError, match=r"E-lemma-C.13 assumes σ² = 2d_p.*derived"):
        bounds.HeadsTokenConstant(narrow, form="printed").evaluate(SAMPLE)


def test_erratum_6_print_falls_when_a_norm_grows():
    """R_t^mha/ρ̃_t falls with ω_q, so the printed bound does."""
    networks = [
        bounds.FullTransformer(
            4,
            4,
            4,
            (bounds.FullLayerNorms((bounds.FullHeadNorms(query_norm=norm, query_mixed_norm=1),)),),
        )
        for norm in (1, 10)
    ]
    printed = [
        bounds.FullTransformerGap(n, form="printed").evaluate(SAMPLE).value for n in networks
    ]
    derived = [bounds.FullTransformerGap(n).evaluate(SAMPLE).value for n in networks]
    assert printed[1] < printed[0]
    assert derived[1] > derived[0]


def test_erratum_8_print_has_the_larger_norm_of_the_values():
    attention = bounds.SingleAttention(8, 4, attention_norm=1.0, attention_size=50.0)
    printed, derived = (attention.scales(form) for form in ("printed", "derived"))
    assert float(printed.sharpness) == pytest.approx(50.0)
    assert float(derived.sharpness) == pytest.approx(1.0)


def test_erratum_9_print_does_not_count_all_parameters():
    """d_pH = 64 > D = 8: the heads alone have more parameters than (4 + H)D²."""
    network = bounds.FullTransformer.uniform(8, 8, n_heads=8, head_dimension=8)
    printed = bounds.FullTransformerCovering(network, form="printed")
    derived = bounds.FullTransformerCovering(network)
    assert printed.n_dimensions < network.n_parameters == derived.n_dimensions
    usual = bounds.FullTransformer.uniform(64, 128, n_heads=4)
    assert bounds.FullTransformerCovering(usual).n_dimensions >= usual.n_parameters


def test_erratum_10_the_whole_excess_risk_counts():
    """A pretrained function far from the best of its class: E_approx^PT = 0 explains nothing."""
    # One atom, W_DS = W_SSL = 1: f̂_PT = t, f*_PT = f*_DS = 0, so the downstream error is t².
    t = 0.3
    printed = bounds.TransferApproximation(0.0, 0.0, 0.0, 0.0, 1.0).evaluate(SAMPLE).value
    whole = bounds.TransferApproximation(t**2, 0.0, 0.0, 0.0, 1.0).evaluate(SAMPLE).value
    assert printed < t**2 <= whole


def test_erratum_12_print_has_the_radius_where_its_square_belongs():
    network = bounds.FullTransformer.uniform(4, 4, 100, norm=1e-3)
    size, _ = log_deviation(network, 1e4, ChainForm.of(network, "derived", False))
    assert (
        bounds.log_product_limit(network, 1e4, "printed")
        < size
        <= bounds.log_product_limit(network, 1e4)
    )


def test_the_limit_g_5_holds_on_random_networks():
    rng = np.random.default_rng(1)
    for _ in range(300):
        depth = int(rng.integers(1, 12))
        norms = 10 ** rng.uniform(-2, 2, size=(depth, 10))
        layers = tuple(
            bounds.FullLayerNorms((bounds.FullHeadNorms(*row[:6]),), *row[6:])
            for row in norms.tolist()
        )
        network, radius = bounds.FullTransformer(4, 4, 2, layers), float(10 ** rng.uniform(-2, 2))
        size, _ = log_deviation(network, radius, ChainForm())
        assert size <= bounds.log_product_limit(network, radius)


NETWORK = bounds.FullTransformer.uniform(8)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: bounds.FullTransformerGap(replace(NETWORK, positions="trained")).evaluate(
                SAMPLE
            ),
            "trained positional table.*Nearest bound: parameter-count",
        ),
        (
            lambda: bounds.FullTransformerCovering(
                replace(NETWORK, normalization="layer_norm")
            ).evaluate(SAMPLE),
            "without normalization.*LayerNorm.*Nearest bound: F-chain-blocks",
        ),
        (
            lambda: bounds.FullTransformerGap(NETWORK).evaluate(
                replace(SAMPLE, loss_bound=math.inf)
            ),
            "bounded loss.*Nearest bound: none with constants; R-thm-risk",
        ),
        (
            lambda: bounds.measure_network(object()),
            "ResidualTransformer.*Nearest bound: S-thm-A.17",
        ),
        (lambda: bounds.TransformerRisk(NETWORK, form="printed"), "no printed form"),
        (
            lambda: bounds.TransformerRate(NETWORK).samples_needed(0.1, SAMPLE),
            "scaling quantity.*constant",
        ),
        (
            lambda: bounds.SingleRate(bounds.SingleAttention(4, 2)).samples_needed(0.1, SAMPLE),
            "scaling",
        ),
        (
            lambda: bounds.FullTransformerCovering(NETWORK).samples_needed(0.1, SAMPLE),
            "does not fall",
        ),
        (lambda: bounds.ConditionalMeanError().samples_needed(0.1, SAMPLE), "Solve for tokens"),
        (lambda: bounds.ConditionalMeanError(form="printed").tokens_needed(0.1, SAMPLE), "scaling"),
    ],
)
def test_what_a_theorem_does_not_cover_is_refused_by_name(call, words):
    with pytest.raises(UnsupportedError, match=f"(?s){words}"):
        call()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: bounds.FullTransformer(0, 1, 1, (bounds.FullLayerNorms(),)), "`dimension`"),
        (lambda: bounds.FullTransformer(1, 1, 1, ()), "`layers`"),
        (lambda: bounds.FullTransformer.uniform(4, exponent=0.5), "`exponent`"),
        (lambda: bounds.FullTransformer.uniform(4, positions="learned"), "`positions`"),
        (lambda: bounds.FullTransformer.uniform(4, normalization="batch"), "`normalization`"),
        (lambda: bounds.FullTransformer.uniform(4, exponent="two"), "`exponent`"),
        (lambda: bounds.FullLayerNorms(()), "`heads`"),
        (
            lambda: bounds.FullLayerNorms(outer_norm=None, outer_mixed_norm=1.0),
            "`outer_mixed_norm`",
        ),
        (lambda: bounds.FullHeadNorms(query_norm=-1.0), "`query_norm`"),
        (lambda: bounds.FullTransformerGap(NETWORK, "exact"), "`constants`"),
        (lambda: bounds.FullTransformerGap(NETWORK, "sharp", form="printed"), "`constants`"),
        (lambda: bounds.FullTransformerGap(NETWORK, integral="simpson"), "`integral`"),
        (lambda: bounds.FullTransformerCovering(NETWORK, resolution=0.0), "`resolution`"),
        (lambda: bounds.SingleAttention(4, 2, attention_norm=0.0), "`attention_norm`"),
        (lambda: bounds.ConditionalMeanError(ridge=0.0), "`ridge`"),
        (lambda: bounds.TransferApproximation(-1.0, 0, 0, 0), "`pretraining_excess`"),
        (
            lambda: bounds.TransformerRate(bounds.FullTransformer.uniform(4, norm=0.0)).evaluate(
                SAMPLE
            ),
            "norms > 0",
        ),
        (
            lambda: bounds.ConditionalMeanError(1.0, source_norm=1.0).tokens_needed(0.5, SAMPLE),
            "bias of the ridge",
        ),
        (
            lambda: bounds.FullTransformerGap.from_settings(
                BoundSettings(norms={"layers": [{"valu_norm": 2.0}]})
            ),
            "valu_norm",
        ),
    ],
)
def test_wrong_input_is_named(call, words):
    with pytest.raises(InputError, match=words):
        call()
