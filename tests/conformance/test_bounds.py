"""What every bound of the registry obeys: monotone, invertible, free of NaN, refused by name."""

import json
import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from finetti.bounds import BoundSettings, Sample, build_bounds, load_bounds
from finetti.bounds.bound import ONE_HEAD, ONE_LAYER, NetworkShape
from finetti.bounds.count_solver import COUNTS, solve
from finetti.bounds.description import map_norms
from finetti.bounds.evaluation.sweep import larger_norms
from finetti.bounds.evaluation.symbols import SYMBOLS, symbols_in
from finetti.bounds.value import OF_THE_LOSS
from finetti.core.errors import FinettiError, InputError, UnsupportedError

REGISTRY = load_bounds()
BOUNDS = pytest.mark.parametrize("theorem", REGISTRY, ids=lambda theorem: theorem.name)
SAMPLE = Sample(10**7, 10, input_norm=0.9)
# What may fall when a norm grows: scaling forms of paper E with a norm in a denominator.
MAY_FALL = ("E-thm-C.4", "E-thm-5.3")
# Their search for an allocation stops where little is gained.
SEARCHED = ("F-cover-length", "F-chain-blocks")
# Printed forms that an erratum breaks.
UNPROVEN = {"E-lemma-C.7", "E-lemma-C.8", "E-thm-C.5"}
# Outside of paper S, whose covers grow with the logarithm of the context length.
READ_THE_LENGTH = {"E-prop-4.1", "R-norm-mlp", "R-thm-risk", "R-thm-biased-risk"}

# Covers that count how units are shared, in whatever is covered.
COUNT_UNITS = {"S-lemma-4.5-refined", "F-cover-maurey"}


def settings_of(theorem, norms=None, **options):
    """A small network that the theorem covers; paper R asks for H > 1/δ heads."""
    given = measured(theorem) | (norms or {})
    return BoundSettings(
        width=8, n_heads=100 if theorem.paper == "R" else 1, norms=given, **options
    )


def measured(theorem):
    """The mean loss that a certificate is about, which has no default."""
    return {name: 0.1 for name in ("empirical_risk", "error_rate") if name in theorem.norm_names()}


def drawn(theorem, rng):
    """A bound whose norms are drawn over two decades: its layers and heads differ."""
    layers = 1 if ONE_LAYER in theorem.assumes else 2
    heads = 100 if theorem.paper == "R" else 1 if ONE_HEAD in theorem.assumes else 2
    bound = theorem.from_settings(BoundSettings(layers, 8, heads, norms=measured(theorem)))
    return map_norms(bound, lambda path, norm: float(norm * 10 ** rng.uniform(-1, 1)))


def forms(theorem):
    """The forms that it has."""
    return ("derived",) if theorem.printed_kind is None else ("derived", "printed")


def built(theorem, **options):
    """The bound of a small network."""
    return build_bounds([theorem], settings_of(theorem, **options))[0]


@BOUNDS
def test_a_bound_never_falls_when_a_norm_grows(theorem):
    rng = np.random.default_rng(0)
    for bound in (built(theorem), *(drawn(theorem, rng) for _ in range(4))):
        before = bound.evaluate(SAMPLE)
        if theorem.name in MAY_FALL:
            assert bound.kind == "scaling"  # the exceptions are no upper bounds
            return
        for path, larger, sample in larger_norms(bound, SAMPLE):
            try:
                after = larger.evaluate(sample)
            except UnsupportedError:  # which `sensitivity` tells
                continue
            tolerance = 1e-6 if theorem.name.startswith(SEARCHED) else 1e-12
            least = before.log_value - tolerance * max(1, abs(before.log_value))
            assert after.log_value >= least, path


@BOUNDS
def test_a_capacity_never_falls_with_the_sample_and_a_loss_never_rises(theorem):
    bound = built(theorem)
    few, many = (bound.evaluate(replace(SAMPLE, n_samples=n)).log_value for n in (10**6, 10**8))
    if theorem.quantity in (*OF_THE_LOSS, "Rademacher complexity"):
        assert many < few
    else:
        assert many >= few
    if theorem.quantity in OF_THE_LOSS:
        surer = bound.evaluate(replace(SAMPLE, delta=0.02)).log_value
        assert surer >= bound.evaluate(SAMPLE).log_value


@BOUNDS
def test_a_bound_is_exactly_constant_in_the_context_length_or_reads_it(theorem):
    reads = theorem.name in READ_THE_LENGTH or (
        theorem.paper == "S" and theorem.name != "S-lemma-2.2"
    )
    for form in forms(theorem):
        bound = built(theorem, form=form)
        lengths = (1, 1000, 10**100)
        found = {bound.evaluate(replace(SAMPLE, context_length=n)).log_value for n in lengths}
        assert len(found) == (3 if reads else 1)


@BOUNDS
@pytest.mark.parametrize("count", COUNTS)
def test_the_solution_is_the_smallest_count(theorem, count):
    """value(n) ≤ gap < value(n − 1), also where the value is a scaling quantity."""
    bound = built(theorem)
    constant = 1.0 if bound.kind == "scaling" else None
    if count not in bound.solves:
        with pytest.raises(UnsupportedError, match="does not fall with the number of"):
            solve(bound, count, 0.3, SAMPLE, constant)
        return
    wrong, words = (1.0, "all its constants") if constant is None else (None, "scaling quantity")
    with pytest.raises(UnsupportedError, match=words):
        solve(bound, count, 0.3, SAMPLE, wrong)
    gap = 0.3
    if constant is not None or theorem.quantity not in OF_THE_LOSS:
        gap = 1.5 * bound.evaluate(SAMPLE).value  # what can be reached
    found = solve(bound, count, gap, SAMPLE, constant).count
    least, _ = bound.count_limits(count, SAMPLE)

    def value(n):
        sized, there = bound.with_count(count, n, SAMPLE)
        return sized.evaluate(there).log_value

    assert value(found) <= math.log(gap)
    if least < found < 2**53:
        assert value(found - 1) > math.log(gap)
    elif found > least:  # to 12 digits of log n
        assert value(int(found * (1 - 1e-9))) > math.log(gap)


@BOUNDS
def test_huge_counts_and_norms_give_numbers(theorem):
    for form in forms(theorem):
        bound = built(theorem, form=form)
        for sample in (Sample(10**25, 10**25), Sample(10**400, 10)):  # beyond floats
            value = bound.evaluate(sample)
            assert not math.isnan(value.log_value)
            assert not any(math.isnan(term.log_value) for term in value.terms)


@BOUNDS
@pytest.mark.parametrize("norm", [0.0, 1e-200, 1e200])
def test_norms_of_any_size_give_numbers_or_are_refused(theorem, norm):
    for form in forms(theorem):
        try:
            bound = map_norms(
                built(theorem, form=form), lambda path, before: norm if before else before
            )
            value = bound.evaluate(SAMPLE)
        except FinettiError:  # what takes positive norms only says so
            assert norm == 0
            continue
        assert not math.isnan(value.log_value)
        assert not any(math.isnan(term.log_value) for term in value.terms)
        assert str(value)
        if norm == 0 and (bound.kind, bound.quantity) == ("upper_bound", "log covering number"):
            assert value.value == 0 or theorem.name in COUNT_UNITS  # a single function


@BOUNDS
def test_values_and_descriptions_are_plain_data(theorem):
    for form in forms(theorem):
        bound = built(theorem, form=form)
        value = bound.evaluate(SAMPLE)
        plain = value.to_dict()
        assert json.loads(json.dumps(plain, allow_nan=False)) == plain
        assert math.isfinite(value.log_value)
        assert (plain["kind"], plain["quantity"]) == (bound.kind, theorem.quantity)
        assert theorem.name in str(bound)
        assert bound.citation in str(value)
        assert replace(bound) == bound


def test_printed_forms_that_an_erratum_breaks_are_unproven():
    assert {theorem.name for theorem in REGISTRY if theorem.printed_kind == "unproven"} == UNPROVEN
    for theorem in (REGISTRY[name] for name in UNPROVEN):
        bound = built(theorem, form="printed")
        found = bound.evaluate(SAMPLE)
        assert (found.kind, found.vacuous) == ("unproven", None)
        assert any("errata" in note for note in found.notes)
        for constant in (None, 1.0) if bound.solves else ():
            with pytest.raises(UnsupportedError, match=r"is unproven.*derived"):
                solve(bound, "samples", 0.5, SAMPLE, constant)


@BOUNDS
def test_shares_of_the_terms_add_up_to_one(theorem):
    value = built(theorem).evaluate(SAMPLE)
    shares = [term.share for term in value.terms]
    if shares and None not in shares:
        assert math.fsum(shares) == pytest.approx(1.0, abs=1e-9)


def test_formulas_on_screen_use_the_declared_symbols_and_all_of_them():
    used = set()
    for theorem in REGISTRY:
        for form in forms(theorem):
            value = built(theorem, form=form).evaluate(SAMPLE)
            terms = (term.name for term in value.terms if not term.name.startswith("He_"))
            for text in (theorem.title, theorem.statement, *theorem.assumes, *value.notes, *terms):
                used |= {*symbols_in(text)}
    assert used == {*SYMBOLS}


@BOUNDS
def test_refusals_name_the_bound_and_the_norm(theorem):
    with pytest.raises(InputError, match=rf"^{theorem.name} has no norm called 'nonsense'"):
        built(theorem, norms={"nonsense": 1.0})
    with pytest.raises(FinettiError, match="'guessed'"):
        built(theorem, form="guessed")
    if theorem.printed_kind is None:
        with pytest.raises(UnsupportedError, match=f"^{theorem.name} has no printed form"):
            built(theorem, form="printed")
    other = BoundSettings(
        n_layers=3,
        width=8,
        n_heads=2,
        norms={"positions": "trained", "normalization": "layer_norm", "skips": True},
    )
    shape = NetworkShape.of(other)
    if shape.failed(theorem.assumes):
        with pytest.raises(UnsupportedError, match=f"^{theorem.name} assumes .*Nearest bound: "):
            theorem.from_settings(other)
    if theorem.needs_bounded_loss:
        with pytest.raises(UnsupportedError, match=f"^{theorem.name} assumes a bounded loss"):
            built(theorem).evaluate(replace(SAMPLE, loss_bound=math.inf))


def test_bounds_are_built_evaluated_and_shown_without_jax():
    code = (
        "import sys\n"
        "from finetti.bounds import BoundSettings, Sample, load_bounds, sensitivities\n"
        "from finetti.bounds.exchangeability import matrix_norms\n"
        "for theorem in load_bounds():\n"
        "    names = {'empirical_risk', 'error_rate'} & {*theorem.norm_names()}\n"
        "    norms, heads = dict.fromkeys(names, 0.1), 100 if theorem.paper == 'R' else 1\n"
        "    settings = BoundSettings(width=4, n_heads=heads, norms=norms)\n"
        "    bound = theorem.from_settings(settings)\n"
        "    sample = Sample(10**6, 10)\n"
        "    str(bound.evaluate(sample)), str(sensitivities(bound, sample))\n"
        "matrix_norms([[1.0]])\n"
        "print(sorted({'jax', 'equinox'} & {*sys.modules}))"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done.stderr
