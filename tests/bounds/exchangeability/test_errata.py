"""Where print and proof differ, and what paper E's bounds refuse."""

from dataclasses import replace

import numpy as np
import pytest

from finetti.bounds import BoundSettings
from finetti.bounds import exchangeability as bounds
from finetti.bounds.exchangeability.layer_constants import log_deviation
from finetti.bounds.sample import Sample
from finetti.core.errors import InputError, UnsupportedError

SAMPLE = Sample(1000, 20)
NETWORK = bounds.FullTransformer.uniform(8)


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
        (bounds.HeadsCovering, "unproven"),
        (bounds.FullTransformerCovering, "unproven"),
        (bounds.TransformerComplexity, "unproven"),
        (bounds.FullTransformerGap, "unproven"),
        (bounds.FeedForwardCovering, "upper_bound"),
    ],
)
def test_print_that_rests_on_an_erratum_is_no_upper_bound(bound, kind):
    found = bound(NETWORK, form="printed").evaluate(SAMPLE)
    assert found.kind == kind
    assert any("errata 5, 6 and 9" in note for note in found.notes) == (kind == "unproven")
    assert found.vacuous is None


@pytest.mark.parametrize("constant", [None, 1.0])
def test_print_that_rests_on_an_erratum_is_not_inverted(constant):
    printed = bounds.FullTransformerGap(NETWORK, form="printed")
    with pytest.raises(UnsupportedError, match=r"E-thm-C.5 .printed. is unproven.*derived"):
        printed.samples_needed(0.5, SAMPLE, constant)


def test_erratum_6_print_falls_when_a_norm_grows():
    """R_t^mha/ρ̃_t falls with ω_q, so the printed bound does."""
    networks = [
        bounds.FullTransformer(
            4,
            4,
            4,
            (bounds.FullLayerNorms((bounds.FullHeadNorms(norm, query_mixed_norm=1.0),)),),
        )
        for norm in (1, 10)
    ]
    sample = Sample(10**8, 20)
    printed = [
        bounds.FullTransformerGap(n, form="printed").evaluate(sample).value for n in networks
    ]
    derived = [bounds.FullTransformerGap(n).evaluate(sample).value for n in networks]
    assert printed[1] < printed[0]
    assert derived[1] > derived[0]


def test_erratum_9_print_does_not_count_all_parameters():
    """d_pH = 64 > D = 8: the heads alone have more parameters than (4 + H)D²."""
    network = bounds.FullTransformer.uniform(8, 8, n_heads=8, head_dimension=8)
    printed = bounds.FullTransformerCovering(network, form="printed").n_dimensions
    derived = bounds.FullTransformerCovering(network).n_dimensions
    assert printed < derived == 2 * 8 * 8 + 8 * 3 * 8 * 8


def test_erratum_10_the_whole_excess_risk_counts():
    """A pretrained function far from the best of its class: E_approx^PT = 0 explains nothing."""
    # One atom, W_DS = W_SSL = 1: f̂_PT = t, f*_PT = f*_DS = 0, so the downstream error is t².
    t = 0.3
    printed = bounds.TransferApproximation(0.0, 0.0, 0.0, 0.0, 1.0).evaluate(SAMPLE).value
    whole = bounds.TransferApproximation(t**2, 0.0, 0.0, 0.0, 1.0).evaluate(SAMPLE).value
    assert printed < t**2 <= whole


def test_erratum_12_print_has_the_radius_where_its_square_belongs():
    network = bounds.FullTransformer.uniform(4, 4, 100, norm=1e-3)
    size, _ = log_deviation(network, 2e4)
    assert (
        bounds.log_product_limit(network, 2e4, "printed")
        < size
        <= bounds.log_product_limit(network, 2e4)
    )


def test_the_limit_g_5_holds_on_random_networks():
    rng = np.random.default_rng(1)
    for _ in range(100):
        depth = int(rng.integers(1, 12))
        norms = 10 ** rng.uniform(-2, 2, size=(depth, 10))
        layers = tuple(
            bounds.FullLayerNorms((bounds.FullHeadNorms(*row[:6]),), *row[6:])
            for row in norms.tolist()
        )
        network, radius = bounds.FullTransformer(4, 4, 2, layers), float(10 ** rng.uniform(-2, 2))
        assert log_deviation(network, radius)[0] <= bounds.log_product_limit(network, radius)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"positions": "trained"}, "trained positional table.*Nearest bound: "),
        ({"normalization": "layer_norm"}, "without normalization.*Nearest bound: "),
    ],
)
def test_a_network_that_paper_e_does_not_have_is_refused_by_name(settings, words):
    with pytest.raises(UnsupportedError, match=f"(?s){words}"):
        bounds.FullTransformerGap.from_settings(BoundSettings(norms=settings))


def test_only_tokens_reduce_the_error_of_the_attention():
    with pytest.raises(UnsupportedError, match="Solve for tokens"):
        bounds.ConditionalMeanError().samples_needed(0.1, SAMPLE)
    with pytest.raises(InputError, match="the bias of the ridge stays"):
        bounds.ConditionalMeanError(0.25, source_norm=2.0).tokens_needed(0.4, SAMPLE)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: bounds.FullTransformer(1, 1, 1, ()), "`layers`"),
        (lambda: bounds.FullTransformer.from_arrays([]), "`layers`"),
        (lambda: bounds.FullLayerNorms(()), "`heads`"),
        (lambda: bounds.FullLayerNorms(outer_norm=None, outer_mixed_norm=1.0), "outer_mixed_norm"),
        (
            lambda: bounds.TransformerRate(bounds.FullTransformer.uniform(4, norm=0.0)).evaluate(
                SAMPLE
            ),
            "norms > 0",
        ),
        (
            lambda: bounds.FullTransformerGap.from_settings(
                BoundSettings(norms={"layers": [{"valu_norm": 2.0}]})
            ),
            "valu_norm",
        ),
        (
            lambda: bounds.ConditionalMeanError.from_keys(-np.eye(3), 0.1),
            r"`gram` .* semi-definite.* Got the eigenvalue -1",
        ),
    ],
)
def test_wrong_input_is_named(call, words):
    with pytest.raises(InputError, match=words):
        call()


def test_the_rate_may_fall_in_the_attention_norm_and_the_risk_never_does():
    sample = Sample(10**6, 10, input_norm=0.01)
    small, large = (bounds.SingleAttention(8, 4, omega, 100.0) for omega in (0.5, 1.0))
    values = [bounds.SingleRate(each).evaluate(sample).value for each in (small, large)]
    assert values[1] < values[0]
    risks = [bounds.SingleRisk(each).evaluate(sample).value for each in (small, large)]
    assert risks[1] >= risks[0]
