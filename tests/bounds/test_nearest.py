"""The bound that is offered in place of one that does not apply applies itself."""

import math
import re
from itertools import product

import pytest

from finetti.bounds import BoundSettings, Sample, load_bounds
from finetti.bounds.bound import NEAREST, NetworkShape
from finetti.bounds.value import OF_THE_LOSS
from finetti.core.errors import InputError, UnsupportedError

REGISTRY = load_bounds()
SAMPLE = Sample(10**6, 10)
POSITIONS = (
    {},
    {"positions": "none"},
    {"positions": "fixed", "position_norm": 0.5},
    {"positions": "trained", "position_norm": 0.5},
    {"positions": "trained"},
)
NORMALIZATIONS = ({}, *({"normalization": each} for each in ("ball", "layer_norm", "none")))
SKIPS = ({}, {"skips": False}, {"skips": True})


def build(theorem, settings):
    """The bound if it covers these settings, the sample included; every norm is read."""
    bound = theorem.from_settings(settings)
    theorem.check_names(settings.norms, theorem.name)
    if theorem.paper != "R":  # asks for more heads than are looked at here
        bound.check(SAMPLE)
    return bound


def told(theorem):
    """All networks that differ in what the theorem asks of them, by its norms."""
    names = {*theorem.norm_names()}
    found = []
    for parts in product(POSITIONS, NORMALIZATIONS, SKIPS):
        norms = {name: each[name] for each in parts for name in each if name in names}
        if norms not in found:
            found.append(norms)
    return found


def follow(sentence, settings):
    """The bound that a refusal offers, and the settings with what it asks for."""
    offer = sentence.partition("Nearest bound: ")[2]
    name = re.match(r"[\w.-]*\w", offer)[0]
    numbers = dict.fromkeys(re.findall("`(\\w+)`", offer), 2.0)
    form = "derived" if ", derived" in offer else settings.form
    norms = {**numbers, **settings.norms}
    return REGISTRY[name], BoundSettings(
        settings.n_layers, settings.width, settings.n_heads, form=form, norms=norms
    )


@pytest.mark.parametrize("form", ["derived", "printed"])
@pytest.mark.parametrize("sizes", [(1, 1), (2, 1), (1, 2), (2, 2)], ids=str)
def test_no_bound_is_offered_that_refuses_the_same_network(sizes, form):
    offered = []
    for theorem in REGISTRY:
        if form == "printed" and theorem.printed_kind is None:
            continue
        for norms in told(theorem):
            settings = BoundSettings(sizes[0], 16, sizes[1], form=form, norms=norms)
            try:
                build(theorem, settings)
            except UnsupportedError as error:
                if "Nearest bound: none" in str(error):
                    kinds = {REGISTRY[name].quantity for name in NEAREST} | {*OF_THE_LOSS}
                    assert theorem.quantity not in kinds
                    continue
                other, extended = follow(str(error), settings)
                assert build(other, extended)
                assert other.derived_kind == "upper_bound"
                offered.append((theorem, other))
            except InputError:  # a table of positions needs its length, and says so
                assert theorem.name.startswith("parameter-count")
                assert (norms["positions"], norms.get("position_norm")) == ("trained", None)
    assert len({other for _, other in offered}) >= 4
    for theorem, other in offered:
        assert other.quantity == theorem.quantity or {other.quantity, theorem.quantity} <= {
            *OF_THE_LOSS
        }


def test_all_that_fails_is_named_and_what_no_bound_leaves():
    deep = BoundSettings(6, 16, 8, norms={"positions": "trained", "normalization": "layer_norm"})
    with pytest.raises(UnsupportedError) as refused:
        REGISTRY["S-thm-A.17-gap"].from_settings(deep)
    text = str(refused.value)
    for words in ("a single head", "trains them", "this network has LayerNorm"):
        assert words in text
    assert "E-thm-C.5" not in text
    with pytest.raises(UnsupportedError, match="none; no bound of a Rademacher complexity covers"):
        REGISTRY["E-lemma-C.7"].from_settings(deep)


def test_a_loss_without_a_bound_is_told_first():
    """Every bound of a gap refuses it, so that no other may be offered for its layers."""
    unbounded = Sample(10**6, 10, loss_bound=math.inf)
    for theorem in REGISTRY:
        if theorem.quantity in OF_THE_LOSS and theorem.paper != "R":
            with pytest.raises(UnsupportedError, match="Nearest bound: none with constants"):
                theorem.check_loss(unbounded)


def test_a_shape_that_says_nothing_fails_nothing():
    rules = [each for name in NEAREST for each in REGISTRY[name].assumes]
    assert NetworkShape().failed(rules) == []
