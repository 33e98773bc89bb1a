"""Formulas on a page: a small notation as MathML, which browsers draw by themselves.

Symbols are Unicode (λ, ≤, Σ, ‖), as in text; `_` and `^` take one sign or `{…}`; `\\frac`,
`\\binom`, `\\sqrt`, `\\hat`, `\\tilde`, `\\bar` and `\\text` are as in LaTeX; two or more Latin
letters in a row are one upright word (log, attn); two spaces stand between formulas.
"""

import re
import unicodedata
from collections.abc import Callable
from xml.etree.ElementTree import Element, tostring

from finetti.core.errors import InputError

TOKEN = re.compile(
    r"\\[A-Za-z]+|\\.|\d+(?:\.\d+)?(?:e-?\d+)?|[A-Za-z]{2,}|\s+|[⁰¹²³⁴-⁹⁻⁺]+|[₀-₉₋₊]+|.", re.DOTALL
)
RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789−+")
LOWERED = str.maketrans("₀₁₂₃₄₅₆₇₈₉₋₊", "0123456789−+")
ACCENTS = {"hat": "^", "tilde": "~", "bar": "¯"}
MARKS = {"\u0302": "^", "\u0303": "~", "\u0304": "¯", "\u0305": "¯", "\u0307": "˙"}
FENCES = {"(": ")]", "[": "])", "⟨": "⟩", "⌈": "⌉", "⌊": "⌋", "‖": "‖"}
BIG = {"Σ": "∑", "∑": "∑", "Π": "∏", "∏": "∏", "⋃": "⋃", "⋂": "⋂"}
LIMITS = ("sup", "inf", "max", "min", "lim", "argmin", "argmax")
BREAKS = "=≠≈≡≤≥<>≲≳∝∼→⇒⇔↦∈+−±"  # a line may end before these
THIN, WIDE = "0.17em", "1.2em"


def to_breakable_html(formula: str) -> str:
    """``formula`` as HTML whose lines may end: a ``<span>`` for each formula, of ``<math>`` pieces.

    Browsers break no line inside a ``<math>``, but between two of them: here before relations, plus
    and minus that stand in no bracket.

    >>> to_breakable_html("a ≤ b + (c + d),  c > 0").count("<math")
    5
    """
    formulas: list[list[list[Element]]] = [[[]]]
    for part in _read(formula):
        pieces = formulas[-1]
        if part.tag == "mspace" and part.get("width") == WIDE:
            formulas.append([[]])
            continue
        if pieces[-1] and _breaks(part, pieces[-1][-1]):
            # The first sign of a piece would be taken for that of a number, as in −1.
            part.set("form", "infix")
            pieces.append([])
        pieces[-1].append(part)
    options = {"display": "inline", "displaystyle": "true"}
    lines = ("<wbr>".join(_math(piece, **options) for piece in pieces) for pieces in formulas)
    return " ".join(f"<span>{line}</span>" for line in lines)


def _breaks(part: Element, before: Element) -> bool:
    """Whether a line may end before ``part``: it stands between two sides."""
    return part.tag == "mo" and (part.text or "") in BREAKS and before.tag not in ("mo", "mspace")


def _read(formula: str) -> list[Element]:
    reader = _Reader(formula)
    row = reader.row()
    if reader.ahead is not None:
        raise reader.problem(f"{reader.ahead!r} closes nothing")
    return row


def _math(row: list[Element], **attributes: str) -> str:
    return tostring(_element("math", _element("mrow", *row), **attributes), encoding="unicode")


def _element(tag: str, *content: Element | str, **attributes: str) -> Element:
    element = Element(tag, attributes)
    for each in content:
        if isinstance(each, str):
            element.text = each
        else:
            element.append(each)
    return element


def _group(parts: list[Element]) -> Element:
    return parts[0] if len(parts) == 1 else _element("mrow", *parts)


def _is_word(element: Element) -> bool:
    """Whether it begins or ends as a word does, which stands apart from its neighbors."""
    inner = element if element.tag in ("mi", "mtext") else next(iter(element), element)
    if inner is not element and element.tag not in ("msub", "msup", "msubsup"):
        return False
    return inner.tag in ("mi", "mtext") and len(inner.text or "") > 1


class _Reader:
    """Reads signs from left to right; each method returns what stood there."""

    def __init__(self, formula: str) -> None:
        self.formula = formula
        if not all(sign.isprintable() or sign.isspace() for sign in formula):
            raise self.problem("it holds signs that cannot be printed")
        # A letter with its accent is two signs here; ≠ and other operators stay one.
        parts = (unicodedata.normalize("NFD", c) if c.isalpha() else c for c in formula)
        self.tokens = TOKEN.findall("".join(parts))
        self.position = 0
        self.apart = False  # whether two spaces were passed: another formula begins

    def problem(self, what: str) -> InputError:
        return InputError(f"The formula {self.formula!r} cannot be read: {what}.")

    @property
    def ahead(self) -> str | None:
        """The next sign, spaces left out; None at the end."""
        while self.position < len(self.tokens) and self.tokens[self.position].isspace():
            self.apart = self.apart or len(self.tokens[self.position]) > 1
            self.position += 1
        return self.tokens[self.position] if self.position < len(self.tokens) else None

    def take(self) -> str:
        sign = self.ahead
        if sign is None:
            raise self.problem("it ends too early")
        self.position += 1
        return sign

    def row(self, stop: str = "}") -> list[Element]:
        """Everything up to one of the signs in ``stop``, or the end."""
        parts: list[Element] = []
        while self.ahead is not None and self.ahead not in stop:
            if self.apart and parts:
                parts.append(_element("mspace", width=WIDE))
            self.apart = False
            part = self.scripted()
            near = bool(parts) and parts[-1].tag not in ("mo", "mspace") and part.tag != "mo"
            opens = part.tag == "mrow" and len(part) > 0 and part[0].tag == "mo"
            if near and not opens and (_is_word(part) or _is_word(parts[-1])):
                parts.append(_element("mspace", width=THIN))
            parts.append(part)
        return parts

    def braced(self) -> Element:
        if self.take() != "{":
            raise self.problem("a { is missing after a command")
        parts = self.row()
        if self.ahead is None:
            raise self.problem("a } is missing")
        self.take()
        return _group(parts)

    def argument(self) -> Element:
        return self.braced() if self.ahead == "{" else self.atom()

    def scripted(self) -> Element:
        """A sign with what stands below and above it on its right."""
        first = self.ahead
        base = self.atom()
        scripts: dict[str, Element] = {}
        while (sign := self.ahead) is not None:
            if sign in "_^":
                self.take()
                name, script = ("below" if sign == "_" else "above"), self.argument()
            elif sign[0] in "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺₀₁₂₃₄₅₆₇₈₉₋₊":
                name, script = self._small(self.take())
            elif sign in "'′*" and (sign != "*" or self._is_star()):
                self.take()
                name, script = "above", _element("mo", "′" if sign in "'′" else "*")
            else:
                break
            if name in scripts:
                if name == "below":
                    raise self.problem("two subscripts on one sign")
                script = _element("mrow", scripts[name], script)
            scripts[name] = script
        if not scripts:
            return base
        stacked = first in BIG or first in LIMITS
        if first in BIG:
            base = _element("mo", BIG[first], movablelimits="true")
        elif stacked:
            base = _element("mo", str(first), movablelimits="true", rspace=THIN)
        names = ("munder", "mover", "munderover") if stacked else ("msub", "msup", "msubsup")
        below, above = scripts.get("below"), scripts.get("above")
        if above is None:
            return _element(names[0], base, scripts["below"])
        if below is None:
            return _element(names[1], base, above)
        return _element(names[2], base, below, above)

    def _small(self, signs: str) -> tuple[str, Element]:
        above = signs[0] in "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺"
        text = signs.translate(RAISED if above else LOWERED)
        sign = [_element("mo", text[0])] if text[0] in "−+" else []
        parts = [*sign, _element("mn", text[len(sign) :])] if text[len(sign) :] else sign
        return ("above" if above else "below"), _group(parts)

    def _is_star(self) -> bool:
        """A star right after a sign, with none after it to multiply with: x* and not a*b."""
        after = self.tokens[self.position + 1 : self.position + 2]
        return self.position > 0 and (not after or not (after[0].isalnum() or after[0] == "("))

    def atom(self) -> Element:
        """One sign, group or command."""
        if self.ahead == "{":
            return self.braced()
        sign = self.take()
        if sign[0] == "\\":
            return self._command(sign[1:])
        if sign in FENCES:
            return self._fenced(sign)
        if sign == "√":
            inner = self.argument()
            bracketed = inner.tag == "mrow" and len(inner) > 2 and inner[0].text == "("
            return _element("msqrt", *(inner[1:-1] if bracketed else [inner]))
        if sign in "_^}":
            raise self.problem(f"{sign!r} stands after nothing")
        if sign[0].isdigit() and sign[0].isascii():
            return _number(sign)
        if sign[0].isalpha() or sign in "∞∅∂∇⊤⊥℘":
            letter = _element("mi", sign)
            if len(sign) == 1 and (mark := self._mark()):
                return _element("mover", letter, _element("mo", mark), accent="true")
            return letter
        if sign == "|":
            return _element("mo", sign, stretchy="false", lspace="0.1em", rspace="0.1em")
        return _element("mo", "−" if sign == "-" else sign)

    def _mark(self) -> str | None:
        """The accent that is written on the letter just read."""
        after = self.tokens[self.position : self.position + 1]
        if after and after[0] in MARKS:
            self.position += 1
            return MARKS[after[0]]
        return None

    def _fenced(self, opening: str) -> Element:
        """Brackets and what they enclose grow together; one without a partner stays small."""
        start = self.position
        inner = self.row(FENCES[opening] + "}")
        if self.ahead is None or self.ahead == "}":
            self.position = start
            return _element("mo", opening, stretchy="false")
        return _element("mrow", _element("mo", opening), *inner, _element("mo", self.take()))

    def _command(self, name: str) -> Element:
        if name in ACCENTS:
            return _element("mover", self.argument(), _element("mo", ACCENTS[name]), accent="true")
        makers: dict[str, Callable[[], Element]] = {
            "frac": lambda: _element("mfrac", self.braced(), self.braced()),
            "sqrt": lambda: _element("msqrt", self.braced()),
            "binom": self._binomial,
            "text": self._text,
            **{sign: lambda: _element("mo", name) for sign in "{}_^|"},
        }
        if name not in makers:
            raise self.problem(f"\\{name} is not one of its commands")
        return makers[name]()

    def _binomial(self) -> Element:
        pair = _element("mfrac", self.braced(), self.braced(), linethickness="0")
        return _element("mrow", _element("mo", "("), pair, _element("mo", ")"))

    def _text(self) -> Element:
        if self.take() != "{" or "}" not in self.tokens[self.position :]:
            raise self.problem("\\text needs { and }")
        end = self.tokens.index("}", self.position)
        text = "".join(self.tokens[self.position : end])
        self.position = end + 1
        return _element("mtext", unicodedata.normalize("NFC", text))


def _number(text: str) -> Element:
    mantissa, _, power = text.partition("e")
    if not power:
        return _element("mn", text)
    exponent = [_element("mn", power.lstrip("-"))]
    if power[0] == "-":
        exponent.insert(0, _element("mo", "−"))
    ten = _element("msup", _element("mn", "10"), _group(exponent))
    return _element("mrow", _element("mn", mantissa), _element("mo", "·"), ten)
