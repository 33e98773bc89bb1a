"""Reads rules such as ``x3 & (x7 | ~x9) ^ x12`` and ``x1 + x2 + x3 >= 2``.

or    := xor ("|" xor)*              not  := "~" not | atom
xor   := and ("^" and)*              atom := x<index> | 0 | 1 | "(" or ")" | call
and   := comparison ("&" comparison)*
comparison := sum (">=" | ">" | "<=" | "<" | "==" | "!=") sum | not
sum   := (not | number) ("+" (not | number))*
call  := name "(" [count ";"] or ("," or)* ")"
"""

import re
from dataclasses import dataclass
from typing import Any, NoReturn, get_args

from finetti.boolean.language.expression import (
    COUNTED,
    NAMES,
    ExpressionRule,
    Gate,
    Negation,
    Node,
    TruthValue,
    Variable,
)
from finetti.boolean.language.families import Kind
from finetti.boolean.language.rule import BooleanFunction
from finetti.core.errors import InputError, bad_argument

TOKEN = re.compile(
    r"(?P<name>[A-Za-z_]+)(?P<index>[0-9]*)|(?P<number>[0-9]+)|<?[-=]>|"
    r"(?P<sign>[<>=!]=|[~&^|(),;+<>])|\S"
)
CALLS: dict[str, Kind] = {NAMES.get(str(kind), str(kind)): kind for kind in get_args(Kind)}
SIGNS: tuple[tuple[str, Kind], ...] = (("|", "or"), ("^", "parity"), ("&", "and"))
COMPARISONS = (">=", ">", "<=", "<", "==", "!=")
OPERAND = "a variable, a constant 0 or 1, '~' or '('"
MAX_PARENTHESES = 100
MAX_DIGITS = 12  # of an index or a count: more bits than any context has
IMPLIES = "'a implies b' is written '~a | b'"
EQUIVALENT = "'a if and only if b' is written '~(a ^ b)'"
HINTS = {  # how others write what is written differently here
    "&&": "'and' is written '&'",
    "||": "'or' is written '|'",
    "!": "'not' is written '~'",
    "=": "'equal' is written '=='",
    "->": IMPLIES,
    "=>": f"{IMPLIES}, and 'at least' '>='",
    "<->": EQUIVALENT,
    "<=>": EQUIVALENT,
    "not": "'not' is written '~'",
    "xor": "'xor' is written '^', or parity(…)",
    "majority": "write maj(…)",
    "and": "'and' between two parts is written '&'",
    "or": "'or' between two parts is written '|'",
}


class RuleSyntaxError(InputError):
    """A rule that cannot be read; ``picture`` is the rule with a caret under the place."""

    def __init__(self, text: str, position: int, problem: str):
        self.sentence = f"The rule cannot be read at position {position}: {problem}."
        # One blank per character before the place, so that the caret stands under it.
        line = re.sub(r"\s", " ", text)
        self.picture = f"  {line}\n  {' ' * position}^"
        self.position = position
        super().__init__(f"{self.sentence}\n{self.picture}")


@dataclass(frozen=True)
class _Token:
    text: str
    position: int
    kind: str  # "variable", "name", "number", "sign", "end"


def _tokens(text: str) -> list[_Token]:
    found = []
    for match in TOKEN.finditer(text):
        word, place = match.group(), match.start()
        if match["sign"]:
            found.append(_Token(word, place, "sign"))
        elif len(match["index"] or match["number"] or "") > MAX_DIGITS:
            digits = len(match["index"] or match["number"])
            problem = f"a number of {digits} digits; {MAX_DIGITS} are the most"
            raise RuleSyntaxError(text, place, problem)
        elif match["number"]:
            found.append(_Token(word, place, "number"))
        elif match["name"] == "x" and match["index"]:
            found.append(_Token(word, place, "variable"))
        elif match["name"] and not match["index"]:
            found.append(_Token(word, place, "name"))
        else:
            problem = (
                f"{word!r} is not part of a rule; {HINTS.get(word, 'variables are x0, x1, …')}"
            )
            raise RuleSyntaxError(text, place, problem)
    found.append(_Token("the end", len(text), "end"))
    return found


class _Parser:
    """Recursive descent."""

    def __init__(self, text: str):
        self.text = text
        self.tokens = _tokens(text)
        self.place = 0
        self.depth = 0

    @property
    def token(self) -> _Token:
        return self.tokens[self.place]

    def fail(self, expected: str, token: _Token | None = None) -> NoReturn:
        token = token or self.token
        got = token.text if token.kind == "end" else repr(token.text)
        doubled = self.text[token.position - 1 : token.position + 1]
        hint = HINTS.get(doubled, HINTS.get(token.text, "")) if token.kind != "end" else ""
        problem = f"expected {expected}, got {got}" + (f" ({hint})" if hint else "")
        raise RuleSyntaxError(self.text, token.position, problem)

    def take(self) -> _Token:
        self.place += 1
        return self.tokens[self.place - 1]

    def accept(self, sign: str) -> bool:
        if self.token.kind == "sign" and self.token.text == sign:
            self.place += 1
            return True
        return False

    def expect(self, sign: str, expected: str) -> None:
        if not self.accept(sign):
            self.fail(expected)

    def chain(self, level: int = 0) -> Node:
        """The parts that a sign of this level joins, from the loosest to the tightest."""
        sign, kind = SIGNS[level]
        parts: list[Node] = []
        while not parts or self.accept(sign):
            last = level == len(SIGNS) - 1
            parts.append(self.comparison() if last else self.chain(level + 1))
        return parts[0] if len(parts) == 1 else Gate(kind, tuple(parts))

    def comparison(self) -> Node:
        first = self.token
        left = self.sum()
        sign = self.token.text if self.token.kind == "sign" else ""
        if sign in COMPARISONS:
            self.take()
            return _compared(left, sign, self.sum())
        if len(left) > 1:
            self.fail(f"what the sum is compared with, after one of {' '.join(COMPARISONS)}")
        if not isinstance(left[0], int):
            return left[0]
        if first.text not in ("0", "1"):
            self.fail(OPERAND, first)
        return TruthValue(first.text == "1")

    def sum(self) -> "list[Node | int]":
        terms: list[Node | int] = []
        while not terms or self.accept("+"):
            number = self.token.kind == "number"
            terms.append(int(self.take().text) if number else self.negated())
        return terms

    def negated(self) -> Node:
        n_signs = 0
        while self.accept("~"):
            n_signs += 1
        atom = self.atom()
        return Negation(atom) if n_signs % 2 else atom

    def atom(self) -> Node:
        token = self.token
        if token.kind == "variable":
            self.take()
            return Variable(int(token.text[1:]))
        if token.kind == "number" and token.text in ("0", "1"):
            self.take()
            return TruthValue(token.text == "1")
        if token.kind == "name" and token.text in CALLS:
            return self.call(CALLS[self.take().text])
        if token.kind == "name":
            self.fail(f"a variable such as x3 or one of {', '.join(CALLS)}")
        if self.accept("("):
            inside = self.nested()
            self.expect(")", "an operator or ')'")
            return inside
        return self.fail(OPERAND)

    def nested(self) -> Node:
        self.depth += 1
        if self.depth > MAX_PARENTHESES:
            self.fail(f"at most {MAX_PARENTHESES} parentheses inside each other")
        node = self.chain()
        self.depth -= 1
        return node

    def call(self, kind: Kind) -> Node:
        self.expect("(", "'('")
        count = 0
        if kind in COUNTED:
            token = self.take()
            if token.kind != "number":
                self.fail(f"a number, as in {kind}(2; x1, x2, x3)", token)
            count = int(token.text)
            self.expect(";", "';' after the number")
        parts = [self.nested()]
        while self.accept(","):
            parts.append(self.nested())
        self.expect(")", "an operator, ',' or ')'")
        return Gate(kind, tuple(parts), count)


def _compared(left: "list[Node | int]", sign: str, right: "list[Node | int]") -> Node:
    """Σa ≥ Σb + k is Σa + Σ(1 − b) ≥ k + (the number of b): one gate, in which b is negated."""
    if sign in ("<", "<="):
        left, sign, right = right, sign.replace("<", ">"), left
    ones = [node for node in left if not isinstance(node, int)]
    others = [node for node in right if not isinstance(node, int)]
    count = sum(n for n in right if isinstance(n, int)) - sum(n for n in left if isinstance(n, int))
    count += len(others) + (sign == ">")
    children = (*ones, *(n.child if isinstance(n, Negation) else Negation(n) for n in others))
    kind: Kind = "exactly" if sign in ("==", "!=") else "atleast"
    if not children or count < 0 or (count == 0 and kind == "atleast"):
        always = count == 0 if kind == "exactly" else count <= 0
        return TruthValue(always ^ (sign == "!="))
    gate = Gate(kind, children, count)
    return Negation(gate) if sign == "!=" else gate


def parse(text: str) -> ExpressionRule:
    """The function that an expression describes.

    From the tightest to the loosest: ``~`` (not), ``&`` (and), ``^`` (exclusive or), ``|`` (or).
    ``and(…)`` and ``or(…)`` are the same as calls. ``maj(…)`` is 1 if more than half of its
    arguments are (a tie is 0), ``parity(…)`` if an odd number is, ``atleast(k; …)`` and
    ``exactly(k; …)`` count. Sums of bits are compared by ``>= > <= < == !=``, which bind tighter
    than ``&``. Arguments are expressions; indices start at 0.

    >>> rule = parse("x3 & (x7 | ~x9)")
    >>> rule.indices, rule.table().tolist()
    ((3, 7, 9), [0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0])
    >>> print(parse("atleast(2; x1, x2, x3) ^ 1"))
    atleast(2; x1, x2, x3) ^ 1
    >>> parse("x0 + x1 > x2 + x3").normal_form
    'atleast(3; x0, x1, ~x2, ~x3)'
    """
    if not isinstance(text, str):
        raise bad_argument("text", "parse", "an expression such as 'x3 & x7'", repr(text))
    parser = _Parser(text)
    tree = parser.chain()
    if parser.token.kind != "end":
        parser.fail("an operator or the end of the rule")
    return ExpressionRule(tree, " ".join(text.split()))


def as_function(function: Any, owner: str, argument: str = "function") -> BooleanFunction:
    """The function itself, or the one that an expression describes."""
    if isinstance(function, str):
        return parse(function)
    if not isinstance(function, BooleanFunction):
        requirement = "a BooleanFunction or an expression such as 'x3 & x7'"
        raise bad_argument(argument, owner, requirement, type(function).__name__)
    return function
