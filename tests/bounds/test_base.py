"""Samples, values, settings, inversion, sensitivity and the registry."""

import math
from dataclasses import dataclass, replace
from dataclasses import fields as dataclass_fields

import pytest

from finetti.bounds import (
    Bound,
    BoundSettings,
    BoundValue,
    Sample,
    Term,
    build_bounds,
    load_bounds,
    sensitivities,
    sweep,
)
from finetti.bounds import description as fields
from finetti.bounds.count_solver import smallest_count, whole_exp
from finetti.bounds.registry import Registry
from finetti.bounds.sparse_variables import (
    CoveringConstantGap,
    HeadClass,
    HeadGap,
    ProjectedLayerNorms,
    ProjectedTransformerCovering,
    ProjectedTransformerGap,
    TransformerClass,
)
from finetti.bounds.value import exp_of, log_of, summed
from finetti.core.errors import FinettiError, InputError, UnsupportedError
from finetti.display import to_text


def test_what_is_not_a_number_is_neither_nothing_nor_infinite():
    assert math.isnan(log_of(math.nan))
    assert math.isnan(exp_of(math.nan))
    assert math.isnan(Term("a", log_value=math.nan).value)
    assert (log_of(0), log_of(math.inf), exp_of(math.inf)) == (-math.inf, math.inf, math.inf)


class Toy(Bound):
    """B²/√n, or its square in print."""

    name = "toy"
    title = "a toy"
    statement = "B²/√n"
    citation = "Nowhere 1, nobody"
    quantity = "generalization gap"
    printed_kind = "scaling"

    size: float = fields.norm(1.0)

    def _evaluate(self, sample):
        log_value = 2 * math.log(self.size) - sample.log_samples / 2
        log_value *= 2 if self.form == "printed" else 1
        return self.value(sample, log_value, summed([Term("all", log_value=log_value)])[1])


SAMPLE = Sample(n_samples=100, context_length=7)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n_samples", 1.5),
        ("context_length", 0),
        ("input_norm", math.inf),
        ("loss_bound", 0.0),
        ("delta", 1.0),
        ("delta", "half"),
    ],
)
def test_bad_samples_are_refused_by_name(field, value):
    with pytest.raises(InputError, match=f"`{field}` argument of Sample"):
        replace(SAMPLE, **{field: value})


def test_sizes_of_any_size():
    sample = Sample(n_samples=10**5000, context_length=1e6)
    assert sample.log_samples == pytest.approx(5000 * math.log(10))
    assert sample.context_length == 10**6
    text = repr(replace(sample, loss_bound=math.inf))
    assert "n_samples=10**5000," in text
    assert "loss_bound=inf" in text


def test_a_value_is_shown_with_its_kind_and_as_vacuous_beyond_the_loss():
    value = Toy(3.0).evaluate(SAMPLE)
    assert value.value == pytest.approx(0.9)
    printed = Toy(4.0, form="printed").evaluate(SAMPLE)
    vacuous = [each.vacuous for each in (value, Toy(4.0).evaluate(SAMPLE), printed)]
    assert vacuous == [False, True, None]
    for word in ("generalization gap", "0.9", "upper bound", "vacuous", "100 %"):
        assert word in str(value)
    assert "scaling quantity" in str(printed)
    assert "<table" in value._repr_html_()


def test_a_value_that_no_float_holds_and_many_terms():
    terms = summed(Term("part", layer, "W", math.log(layer)) for layer in range(1, 101))[1]
    huge = BoundValue(1e5, terms, "A, b", "derived", "upper_bound", "risk")
    plain = huge.to_dict()
    assert (plain["value"], plain["log_value"], huge.value) == (None, 1e5, math.inf)
    assert "10^43429" in str(huge)
    assert "88 more" in str(huge)  # in the table only
    assert len(plain["terms"]) == 100


def test_compare_with_a_measured_gap():
    comparison = Toy(3.0).evaluate(SAMPLE).compare(0.03)
    assert comparison.obeyed
    assert math.exp(comparison.log_ratio) == pytest.approx(30)
    assert "30" in str(comparison)
    assert Toy(1.0).evaluate(SAMPLE).compare(0.2).obeyed is False
    assert Toy(form="printed").evaluate(SAMPLE).compare(0.2).obeyed is None
    other = BoundValue(1.0, (), "A, b", "derived", "upper_bound", "log covering number")
    with pytest.raises(UnsupportedError, match="not measured on data"):
        other.compare(0.1)


def test_solutions_of_any_size_and_refusals_to_solve():
    needed = Toy(3.0).samples_needed(0.1, SAMPLE)
    assert (needed.quantity, needed.count, needed.value) == ("samples", 8100, 8100.0)
    assert Toy(0.1).samples_needed(0.1, SAMPLE).count == 1
    assert Toy(form="printed").samples_needed(0.1, SAMPLE, constant=5.0).value == 50
    huge = Toy(1e100).samples_needed(1e-100, SAMPLE)
    assert huge.log_value == pytest.approx(600 * math.log(10), rel=1e-11)
    assert smallest_count(lambda n: 1.0) is None
    with pytest.raises(InputError, match="gap"):
        Toy().samples_needed(0.0, SAMPLE)
    with pytest.raises(UnsupportedError, match="negative"):
        CoveringConstantGap(1e6, form="printed").samples_needed(0.1, SAMPLE, constant=1.0)


@pytest.mark.parametrize("log_value", [0.0, 5.3, 36.5, 41.0, 1e3, 1e5])
def test_whole_exponentials(log_value):
    assert math.log(whole_exp(log_value)) == pytest.approx(
        log_value, abs=1e-2 if log_value < 6 else 1e-9
    )


def test_sensitivity_is_the_power_of_each_norm():
    found = sensitivities(Toy(2.0), SAMPLE)
    assert found["size"].exponent == pytest.approx(2)
    assert found["sample.input_norm"].log_ratio == 0
    assert "size" in str(found)
    uniform = load_bounds()["S-thm-4.6"].from_settings(BoundSettings(width=4))
    found = sensitivities(uniform, SAMPLE)
    assert [name for name, _ in found.refused] == ["sample.input_norm"]
    assert "cannot grow: S-thm-4.6 assumes" in " ".join(str(found).split())


def test_sensitivities_count_layers_from_one_and_name_the_nearest():
    network = TransformerClass(layers=(ProjectedLayerNorms(),) * 2, width=4)
    found = sensitivities(ProjectedTransformerCovering(network), SAMPLE)
    layers = {row.field.partition(".")[2].partition(".")[0] for row in found}
    assert {each for each in layers if "layers" in each} == {"layers[1]", "layers[2]"}
    with pytest.raises(InputError, match=r"no norm 'readout'.*functions\.readout_norm"):
        found["readout"]


def test_settings_read_lists_and_refuse_what_is_not_read():
    settings = BoundSettings(
        n_layers=2, width=8, norms={"value_norm": 2.0, "layers": [{}, {"value_norm": 3.0}]}
    )
    bound = ProjectedTransformerGap.from_settings(settings)
    assert [layer.value_norm for layer in bound.functions.layers] == [2.0, 3.0]
    assert build_bounds([ProjectedTransformerGap], settings) == [bound]
    for wrong in ({"layers": [{"valeu_norm": 1.0}]}, {"valeu_norm": 1.0}):
        with pytest.raises(InputError, match=r"no norm called 'valeu_norm'\. It reads: [ao]"):
            build_bounds([ProjectedTransformerGap], BoundSettings(norms=wrong))
    with pytest.raises(InputError, match="a list of 2 mappings"):
        ProjectedTransformerGap.from_settings(BoundSettings(n_layers=2, norms={"layers": [{}]}))
    assert BoundSettings(width=7, n_heads=2).head_width == 4
    with pytest.raises(InputError, match="value_norm"):
        ProjectedTransformerGap.from_settings(BoundSettings(norms={"value_norm": "big"}))


def test_registry_finds_bounds_by_name_and_says_what_is_near():
    registry = load_bounds()
    assert registry["s-thm-a.17"] is registry[" S-thm-A.17 "]
    with pytest.raises(FinettiError, match=r"'S-thm-A\.18'\. Did you mean one of S-thm-A\.17, "):
        registry["S-thm-A.18"]
    text_of_all = to_text(registry.__card__(), width=400)
    assert all(bound.name in text_of_all for bound in registry)
    names = registry["R-thm-risk"].norm_names()  # whatever is read by default
    assert {"coefficients", "correlation_degree", "squared_norm", "target_norm"} <= {*names}
    with pytest.raises(FinettiError, match="Two bounds"):
        Registry((Toy, Toy))


def test_delta_replaces_that_of_the_sample():
    gap = HeadGap(HeadClass(width=4, readout_norm=1.0))
    sample = Sample(n_samples=1, context_length=10, delta=0.05)
    careful = gap.samples_needed(0.5, sample, delta=1e-6)
    assert careful.count == gap.samples_needed(0.5, replace(sample, delta=1e-6)).count
    assert careful.count > gap.samples_needed(0.5, sample).count


class Kinds(fields.Description):
    """One field of each kind."""

    width: int = fields.size("width")
    length: float = fields.norm(2.0)
    longest: float = fields.norm(1.0, like="length")
    given: float | None = fields.norm(None)
    ridge: float = fields.number(0.5)
    word: str = fields.choice("one", "two")
    yes: bool = fields.flag(True)
    unread: int = 3


def test_a_field_says_how_it_is_read_and_checked():
    assert Kinds.from_settings(BoundSettings(width=8)) == Kinds(8.0) == Kinds(8, 2.0, 2.0)
    norms = {"length": 5, "given": 0, "word": "two", "yes": 0, "ridge": 1}
    settings = BoundSettings(width=8, norms=norms)
    assert Kinds.from_settings(settings) == Kinds(8, 5.0, 5.0, 0.0, 1.0, "two", False)
    Kinds.check_names(norms, "Kinds")
    wrong = BoundSettings(norms={"unread": 4})
    assert Kinds.from_settings(wrong).unread == 3
    with pytest.raises(InputError, match="no norm called 'unread'"):
        Kinds.check_names(wrong.norms, "Kinds")
    for name, bad in {"width": 0, "length": -1, "given": -1, "ridge": 0, "word": "no"}.items():
        with pytest.raises(InputError, match=f"`{name}` argument of Kinds"):
            replace(Kinds(8), **{name: bad})
    with pytest.raises(InputError, match="`length` argument of Kinds"):
        Kinds(8, None)


@pytest.mark.parametrize("theorem", load_bounds(), ids=lambda theorem: theorem.name)
def test_a_norm_that_is_not_given_is_the_same_in_python_and_in_settings(theorem):
    """A norm that is `like` another one follows it in both."""
    for part in [*described_parts(theorem.from_settings(BoundSettings(width=8)))]:
        followers = {
            each.name: each.metadata[fields.LIKE][0]
            for each in dataclass_fields(part)
            if fields.LIKE in each.metadata and hasattr(part, each.metadata[fields.LIKE][0])
        }
        for follower, source in followers.items():
            own = {each.name: getattr(part, each.name) for each in dataclass_fields(part)}
            python = type(part)(**{k: v for k, v in own.items() if k != follower} | {source: 4.0})
            given = theorem.from_settings(BoundSettings(width=8, norms={source: 4.0}))
            found = next(each for each in described_parts(given) if type(each) is type(part))
            assert getattr(python, follower) == getattr(found, follower) == 4.0


def described_parts(value):
    """A description and all descriptions inside it."""
    if isinstance(value, tuple):
        for each in value:
            yield from described_parts(each)
    elif isinstance(value, fields.Checked):
        yield value
        for each in dataclass_fields(value):
            yield from described_parts(getattr(value, each.name))


@pytest.mark.parametrize(
    "call",
    [lambda: build_bounds([], BoundSettings()), lambda: sweep([], "n_samples", [1, 2])],
)
def test_no_bounds_at_all_are_refused(call):
    with pytest.raises(InputError, match="at least one bound"):
        call()


def test_a_second_dataclass_decorator_is_refused():
    """It would forget how the fields are read and checked."""
    with pytest.raises(TypeError, match="Cannot overwrite attribute"):
        dataclass(frozen=True)(Kinds)
