import itertools
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from finetti.boolean import RuleSyntaxError, parse, simplify
from finetti.boolean.language.expression import (
    ExpressionRule,
    Gate,
    Negation,
    TruthValue,
    Variable,
)
from finetti.boolean.language.rule import all_bits

VARIABLES = st.integers(0, 5).map(Variable)
LEAVES = st.one_of(VARIABLES, VARIABLES, st.booleans().map(TruthValue))
KINDS = st.sampled_from(["and", "or", "parity", "majority", "atleast", "exactly"])
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        inner.filter(lambda node: not isinstance(node, Negation)).map(Negation),
        st.builds(
            lambda kind, children, count: Gate(
                kind, tuple(children), count if kind in ("atleast", "exactly") else 0
            ),
            KINDS,
            st.lists(inner, min_size=2, max_size=4),
            st.integers(0, 4),
        ),
    ),
    max_leaves=10,
)


@given(TREES)
def test_what_is_written_reads_back_as_the_same_tree(tree):
    assert parse(str(ExpressionRule(tree))).tree == tree


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("2 <= x0 + x1", "atleast(2; x0, x1)"),
        ("x0+x1  > x2\n", "atleast(2; x0, x1, ~x2)"),
        ("((x1 & (x2)))", "x1 & x2"),
        ("x1 ^ 1", "x1 ^ 1"),
    ],
)
def test_a_rule_is_shown_as_it_was_written(text, normal):
    rule = parse(text)
    assert str(rule) == " ".join(text.split())
    assert rule.normal_form == normal
    assert parse(normal).tree == parse(str(rule)).tree == rule.tree


@given(st.text(alphabet="x01234&|^~() ", max_size=24))
def test_operators_and_precedence_are_those_of_python(text):
    try:
        rule = parse(text)
    except RuleSyntaxError:
        return
    names = {f"x{i}": i for i in rule.indices}
    for bits in itertools.islice(itertools.product((0, 1), repeat=len(names)), 32):
        # -1 and 0, so that Python's ~ is negation; its & | ^ bind as ours do.
        values = {name: -bit for name, bit in zip(names, bits, strict=True)}
        wanted = -eval(as_python(text, values))
        assert rule.evaluate(np.array([bits], dtype=np.uint8).reshape(1, -1))[0] == wanted


def as_python(text, values):
    def replaced(match):
        word = match.group()
        return f"({values['x' + str(int(word[1:]))]})" if word[0] == "x" else str(-int(word))

    return re.sub(r"x\d+|[01]", replaced, text).strip()


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("x3 & (x7 | ~x9) ^ x12", "((x3 & (x7 | (~x9))) ^ x12)"),
        ("x1 | x2 ^ x3 & x4", "x1 | (x2 ^ (x3 & x4))"),
        ("~x1 & x2", "(~x1) & x2"),
        ("~~x1", "x1"),
        ("maj(x1,x5,x9)", "atleast(2; x1, x5, x9)"),
        ("parity(x1, x2, x3)", "x1 ^ x2 ^ x3"),
        ("exactly(0; x1, x2)", "~x1 & ~x2"),
        ("and(x1, x2) | or(x3, x4)", "x1 & x2 | x3 | x4"),
        ("maj(x1 & x2, x3, ~x4)", "atleast(2; x1 & x2, x3, ~x4)"),
        ("x1 & 1 | 0", "x1"),
        ("x0 + x1 + x2 >= 2", "maj(x0, x1, x2)"),
        ("x0 + x1 > x2 + x3", "atleast(3; x0, x1, ~x2, ~x3)"),
        ("x0 + x1 == x2 + 1", "(x0 ^ x1) & ~x2 | x0 & x1 & x2"),
        ("2 > x0 + x1", "~(x0 & x1)"),
        ("x0 != x1", "x0 ^ x1"),
        ("x0 <= x1", "~x0 | x1"),
        ("~x0 < (x1 & x2) + 1 & x3", "(x0 | x1 & x2) & x3"),  # binds tighter than &
        ("x0 + x1 >= 0 | x2", "1"),
        ("x0 + 3 == 1", "0"),
        ("1 < 2", "1"),
    ],
)
def test_equal_rules(text, same):
    bits = all_bits(13)
    assert (parse(text)(bits) == parse(same)(bits)).all()


@given(
    st.lists(st.integers(0, 5), max_size=4),
    st.sampled_from([">=", ">", "<=", "<", "==", "!="]),
    st.lists(st.integers(0, 5), max_size=4),
    st.integers(0, 3),
)
def test_comparisons_are_those_of_the_sums(left, sign, right, number):
    sides = [" + ".join([f"x{i}" for i in side] or ["0"]) for side in (left, right)]
    rule = parse(f"{sides[0]} {sign} {sides[1]} + {number}")
    bits = all_bits(6).astype(int)
    sums = bits[:, left].sum(axis=1), bits[:, right].sum(axis=1) + number
    wanted = eval(f"a {sign} b", {"a": sums[0], "b": sums[1]})
    assert (rule(bits) == wanted).all()
    assert (parse(rule.normal_form)(bits) == wanted).all()


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("x3 & & x7", 5, "expected a variable"),
        ("x3 &", 4, "the end"),
        ("(x3 | x7", 8, r"'\)'"),
        ("x3 x7", 3, "operator or the end"),
        ("x3 & y7", 5, "not part of a rule"),
        ("foo(x1)", 0, "maj, atleast"),
        ("atleast(x1, x2)", 8, "a number"),
        ("atleast(2, x1)", 9, "';'"),
        ("x1 + x2", 7, "what the sum is compared with"),
        ("x1 + x2 & x3", 8, "compared with, after one of >="),
        ("x1 = x2", 3, "'equal' is written '=='"),
        ("x1 => x2", 3, r"'a implies b' is written '~a \| b', and 'at least' '>='"),
        ("x1 -> x2", 3, r"'a implies b' is written '~a \| b'"),
        ("x1 <=> x2", 3, r"'a if and only if b' is written '~\(a \^ b\)'"),
        ("x1 >= x2 >= x3", 9, "operator or the end"),
        ("x1 & 3", 5, "constant 0 or 1"),
        ("x1 >=", 5, "the end"),
        ("x", 0, "variable such as x3"),
        ("", 0, "expected"),
        ("2", 0, "constant 0 or 1"),
        ("(" * 200 + "x1" + ")" * 200, 101, "inside each other"),
    ],
)
def test_syntax_errors_mark_the_place(text, position, words):
    with pytest.raises(RuleSyntaxError, match=words) as caught:
        parse(text)
    assert caught.value.position == position
    line, caret = caught.value.picture.split("\n")
    assert line == f"  {text}"
    assert caret == " " * (position + 2) + "^"


def test_chains_of_any_length_are_symmetric_at_once():
    rule = parse(" & ".join(f"x{i}" for i in range(3000)))
    assert simplify(rule).profile()[[0, 2999, 3000]].tolist() == [0, 0, 1]
    negated = parse("~(" + " | ".join(f"x{i}" for i in range(60)) + ")")
    assert simplify(negated).profile()[:2].tolist() == [1, 0]
    nested = parse("((x1 & x2) & (x3 & x4))")
    assert simplify(nested).profile().tolist() == [0, 0, 0, 0, 1]
