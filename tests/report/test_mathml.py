"""The notation of formulas, as MathML."""

from xml.etree.ElementTree import fromstring

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finetti.claims import load_ledger
from finetti.core.errors import InputError
from finetti.report.mathml import to_breakable_html


def parsed(formula):
    return fromstring(f"<div>{to_breakable_html(formula).replace('<wbr>', '')}</div>")


def inside(formula):
    """The elements of a formula, written as name(content …)."""

    def short(element):
        return f"{element.tag}({(element.text or '')}{' '.join(map(short, element))})"

    return " ".join(short(each) for row in parsed(formula).iter("math") for each in row[0])


@pytest.mark.parametrize(
    ("formula", "wanted"),
    [
        ("x", "mi(x)"),
        ("x_i²", "msubsup(mi(x) mi(i) mn(2))"),
        ("x² _i", "msubsup(mi(x) mi(i) mn(2))"),
        ("10⁻³", "msup(mn(10) mrow(mo(−) mn(3)))"),
        ("W₁", "msub(mi(W) mn(1))"),
        ("a_{i,j}", "msub(mi(a) mrow(mi(i) mo(,) mi(j)))"),
        (r"\frac{1}{n}", "mfrac(mn(1) mi(n))"),
        (r"\sqrt{d}", "msqrt(mi(d))"),
        ("√(s/m)", "msqrt(mi(s) mo(/) mi(m))"),
        ("√d", "msqrt(mi(d))"),
        (r"\hat{f}", "mover(mi(f) mo(^))"),
        ("f̂", "mover(mi(f) mo(^))"),
        ("ŵ_i", "msub(mover(mi(w) mo(^)) mi(i))"),
        ("a ≠ b", "mi(a) mo(≠) mi(b)"),
        ("s log T", "mi(s) mspace() mi(log) mspace() mi(T)"),
        ("attn(q)", "mi(attn) mrow(mo(() mi(q) mo()))"),
        ("a = 1,  b", "mi(a) mo(=) mn(1) mo(,) mi(b)"),
        (r"\text{if x}", "mtext(if x)"),
        ("(a]", "mrow(mo(() mi(a) mo(]))"),
        ("(a", "mo(() mi(a)"),
        ("‖v‖_2", "msub(mrow(mo(‖) mi(v) mo(‖)) mn(2))"),
        ("Σ_{i} x", "munder(mo(∑) mi(i)) mi(x)"),
        ("Σ", "mi(Σ)"),
        ("max_i x", "munder(mo(max) mi(i)) mi(x)"),
        ("3e-4", "mrow(mn(3) mo(·) msup(mn(10) mrow(mo(−) mn(4))))"),
        ("w* = 1", "msup(mi(w) mo(*)) mo(=) mn(1)"),
        ("f'", "msup(mi(f) mo(′))"),
        ("a - b", "mi(a) mo(−) mi(b)"),
        (r"\{x\}", "mo({) mi(x) mo(})"),
        (r"\binom{n}{k}", "mrow(mo(() mfrac(mi(n) mi(k)) mo()))"),
    ],
)
def test_signs(formula, wanted):
    assert inside(formula) == wanted


@pytest.mark.parametrize(
    ("formula", "why"),
    [
        (r"\frac{1}", "ends too early"),
        (r"\frac 1 2", "a { is missing"),
        ("x_", "ends too early"),
        ("_i", "stands after nothing"),
        ("x_i_j", "two subscripts"),
        ("{x", "a } is missing"),
        ("x}", "closes nothing"),
        (r"\href{a}{b}", "not one of its commands"),
        (r"\text x", "needs { and }"),
    ],
)
def test_what_cannot_be_read_is_refused(formula, why):
    with pytest.raises(InputError, match=why):
        to_breakable_html(formula)


@given(
    st.text(
        alphabet=st.sampled_from("ab x12_^{}()[]|‖\\<>&\"'²₁√Σ/̂*") | st.characters(), max_size=20
    )
)
def test_any_text_is_markup_of_formulas_or_refused(formula):
    try:
        found = parsed(formula)
    except InputError:
        return
    tags = {element.tag for element in found.iter()}
    known = "div span math mrow mi mo mn mtext mspace mfrac msqrt"
    known += " msub msup msubsup munder mover munderover"
    assert tags <= set(known.split())


@pytest.mark.parametrize(
    ("formula", "pieces"),
    [
        ("x", [1]),
        ("a ≤ b + c", [3]),
        ("a = −b", [2]),  # the minus of a number stays with it
        ("(a + b) = c", [2]),
        (r"\frac{a + b}{c}", [1]),
        ("a = 1,  b > 0,  c", [2, 2, 1]),
    ],
)
def test_lines_end_before_operators_and_between_formulas(formula, pieces):
    found = to_breakable_html(formula)
    assert [len(span) for span in parsed(formula)] == pieces
    assert found.count("<wbr>") == sum(pieces) - len(pieces)
    assert found.count('form="infix"') == found.count("<wbr>")


@pytest.mark.parametrize("claim", load_ledger(), ids=lambda claim: claim.id)
def test_every_formula_of_the_ledger_can_be_drawn(claim):
    for formula in filter(None, (claim.formula, claim.printed)):
        assert "<math" in to_breakable_html(formula)
