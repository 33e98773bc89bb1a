"""Hidden rules: a Boolean function of a few bits at unknown positions among many. NumPy only."""

import re
from dataclasses import dataclass
from math import comb, factorial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.language.expression import ExpressionRule
from finetti.boolean.language.families import (
    And,
    Exactly,
    Family,
    Majority,
    Or,
    Parity,
    Symmetric,
    Threshold,
    TruthTable,
)
from finetti.boolean.language.parser import parse
from finetti.boolean.language.rule import BooleanFunction, as_indices, as_rows
from finetti.boolean.language.simplify import find_profile, relevant_indices
from finetti.core.arguments import as_real, as_whole
from finetti.core.errors import InputError, bad_argument
from finetti.core.numerics.random_keys import generator
from finetti.display import Card, Displayable
from finetti.probe.tasks.symmetries import n_symmetries

FAMILIES: dict[str, type[Family]] = {"and": And, "or": Or, "parity": Parity, "majority": Majority}
COUNTED: dict[str, type[Threshold]] = {"threshold": Threshold, "exactly": Exactly}
RULE_NAMES = (
    "and, or, parity, majority, threshold:K, exactly:K, table, table:0110 (2^s digits), "
    "profile:010 (s + 1 digits), or an expression such as 'x0 & (x1 | ~x2)'"
)
MAX_RANDOM_TABLE_BITS = 16
PROBABILITY_BITS = 32  # binary digits of a bit's probability that are used

Bits = NDArray[np.uint8]


@dataclass(frozen=True)
class HiddenRule(Displayable):
    """A family of tasks: one function, whose s bits stand at unknown positions among T.

    Inputs are T independent bits, the label is f(b_I) for a hidden I drawn uniformly.

    Args:
        function: f with values 0 and 1. Only the order of its indices counts: the first one stands
            for the first hidden position. All of its bits must matter.
        context_length: T.
        bit_probability: P(b_t = 1), to 32 binary digits.
        label_noise: probability that a training label is flipped. Validation labels are clean.

    >>> rule = HiddenRule(And((0, 1, 2)), context_length=100)
    >>> task = rule.draw(np.random.default_rng(0))
    >>> bits, labels = task.sample(np.random.default_rng(1), n_samples=200)
    >>> bits.shape, labels.shape, rule.label_probability
    ((200, 100), (200,), 0.125)
    >>> (labels == bits[:, task.indices].all(axis=1)).all()
    np.True_

    Reference: Section 5, edelman2022.
    """

    function: BooleanFunction
    context_length: int
    bit_probability: float = 0.5
    label_noise: float = 0.0

    def __post_init__(self) -> None:
        owner = "HiddenRule"
        _check_function(self.function)
        length = as_whole(self.context_length, "context_length", owner)
        if length < self.sparsity:
            requirement = f"at least {self.sparsity}, the number of hidden bits"
            raise bad_argument("context_length", owner, requirement, length)
        probability = as_real(self.bit_probability, "bit_probability", owner, "in (0, 1)")
        if not 0 < probability < 1:
            raise bad_argument("bit_probability", owner, "in (0, 1)", probability)
        noise = as_real(self.label_noise, "label_noise", owner, "in [0, 1/2)")
        if not 0 <= noise < 0.5:
            raise bad_argument("label_noise", owner, "in [0, 1/2)", noise)
        object.__setattr__(self, "context_length", length)
        object.__setattr__(self, "bit_probability", probability)
        object.__setattr__(self, "label_noise", noise)

    @property
    def sparsity(self) -> int:
        """s, the number of hidden bits."""
        return self.function.sparsity

    @property
    def name(self) -> str:
        """The name that `make_rule` knows the function by."""
        function = self.function
        if isinstance(function, ExpressionRule):
            return str(function)
        for name, family in COUNTED.items():
            if type(function) is family:
                return f"{name}:{function.count}"
        for name, family in FAMILIES.items():
            if type(function) is family:
                return name
        symmetric = isinstance(function, Symmetric)
        values = function.profile() if symmetric else function.table()
        return ("profile:" if symmetric else "table:") + "".join(str(int(v)) for v in values)

    @property
    def n_hypotheses(self) -> int:
        """The number of different hidden functions: C(T, s) times the s!/|symmetries| orders in
        which f can stand on a set of positions."""
        orders = factorial(self.sparsity) // n_symmetries(self.function)
        return comb(self.context_length, self.sparsity) * orders

    @property
    def chance(self) -> float:
        """The accuracy of the better constant: success must ask for more."""
        return max(self.label_probability, 1 - self.label_probability)

    @property
    def label_probability(self) -> float:
        """P(f(b) = 1), before any label is flipped."""
        p, profile = self.bit_probability, find_profile(self.function)
        if profile is not None:
            s = self.sparsity
            terms = (comb(s, r) * p**r * (1 - p) ** (s - r) for r in range(s + 1))
            return float(sum(term for term, value in zip(terms, profile, strict=True) if value))
        cube = self.function.table().reshape((2,) * self.sparsity)
        for _ in range(self.sparsity):
            cube = (1 - p) * cube[0] + p * cube[1]
        return float(cube)

    def draw(self, rng: np.random.Generator) -> "HiddenTask":
        """One of the C(T, s) index sets, uniformly; in random order if the order matters."""
        _check_generator(rng, "HiddenRule.draw")
        found = rng.choice(self.context_length, self.sparsity, replace=False)
        if find_profile(self.function) is not None:
            found = np.sort(found)
        return HiddenTask(self, tuple(map(int, found)))

    def __card__(self) -> Card:
        return Card(
            f"Hidden rule {self.name}",
            (
                ("context length", self.context_length),
                ("hidden bits", self.sparsity),
                ("hidden functions", self.n_hypotheses),
                ("P(bit = 1)", self.bit_probability),
                ("P(label = 1)", self.label_probability),
                ("label noise", self.label_noise),
            ),
        )


@dataclass(frozen=True)
class HiddenTask(Displayable):
    """A hidden rule at known positions: draws samples.

    Args:
        rule: the family.
        indices: the hidden positions, in the order of the function's bits.

    >>> task = HiddenTask(make_rule("parity", 2, 8), indices=(1, 6))
    >>> task.labels([[0, 1, 0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0, 1, 0]]).tolist()
    [1, 0]
    """

    rule: HiddenRule
    indices: tuple[int, ...]

    def __post_init__(self) -> None:
        found = as_indices(self.indices, "HiddenTask")
        rule = self.rule
        if len(found) != rule.sparsity or max(found) >= rule.context_length:
            requirement = f"{rule.sparsity} positions below {rule.context_length}"
            raise bad_argument("indices", "HiddenTask", requirement, found)
        object.__setattr__(self, "indices", found)

    @property
    def function(self) -> Symmetric | TruthTable:
        """The hidden rule as a function of all T bits, for `compile`, `spectrum` and the rest."""
        profile = find_profile(self.rule.function)
        if profile is not None:
            return Symmetric(self.indices, profile)
        return TruthTable(self.indices, self.rule.function.table())

    def labels(self, bits: Any) -> Bits:
        """f(b_I) of each row, without noise."""
        rows = as_rows(bits, self.rule.context_length, "HiddenTask.labels")
        return self.rule.function.evaluate(rows[:, list(self.indices)]).astype(np.uint8)

    def sample(
        self, rng: np.random.Generator, n_samples: int, noisy: bool = True
    ) -> tuple[Bits, Bits]:
        """Bits of shape (m, T) and labels of shape (m,), of which ``label_noise`` are flipped.

        A smaller sample of an equal generator is the beginning of a larger one, and the bits do
        not depend on the noise: what is compared is compared on common random numbers.
        """
        _check_generator(rng, "HiddenTask.sample")
        n_samples = as_whole(n_samples, "n_samples", "HiddenTask.sample")
        digits = _binary_digits(self.rule.bit_probability)
        n_words = -(-self.rule.context_length // 64)
        size = (n_samples, len(digits) * n_words + 1)  # the last word of a row is for the label
        words = rng.integers(0, 2**64 - 1, size, np.uint64, endpoint=True)
        packed = np.zeros((n_samples, n_words), np.uint64)
        # With P = P(bit = 1): P(fair | bit) = (1 + P)/2 and P(fair & bit) = P/2, digit by digit.
        for k, digit in enumerate(reversed(digits)):
            fair = words[:, k * n_words : (k + 1) * n_words]
            packed = fair | packed if digit else fair & packed
        bits = np.unpackbits(packed.view(np.uint8), axis=1, count=self.rule.context_length)
        labels = self.rule.function.evaluate(bits[:, list(self.indices)]).astype(np.uint8)
        if noisy and self.rule.label_noise:
            labels ^= (words[:, -1] >> np.uint64(11)) * 2.0**-53 < self.rule.label_noise
        return bits, labels

    def __card__(self) -> Card:
        card = self.rule.__card__()
        return Card(card.title, (("hidden positions", self.indices), *card.fields))


def make_rule(
    name: str,
    sparsity: int | None,
    context_length: int,
    *,
    bit_probability: float = 0.5,
    label_noise: float = 0.0,
    seed: int = 0,
) -> HiddenRule:
    """A hidden rule by name.

    Args:
        name: ``and``, ``or``, ``parity``, ``majority``, ``threshold:K`` (at least K ones),
            ``exactly:K``, ``profile:010`` (by the number of ones, 0 to s), ``table`` (a random
            truth table, drawn by ``seed``), ``table:0110`` (a given one), or an expression such as
            ``x0 & (x1 | ~x2)``, moved to hidden positions.
        sparsity: s, the number of hidden bits; None where the name says it.
        context_length: T.
        bit_probability: P(b_t = 1).
        label_noise: probability that a training label is flipped.
        seed: of the random truth table.

    >>> make_rule("threshold:2", 3, 100).function
    Threshold((0, 1, 2), 2)
    >>> make_rule("nand", 3, 100)
    Traceback (most recent call last):
    finetti.core.errors.InputError: The `name` argument of make_rule must be one of and, or, ...
    """
    function = _named_function(name, sparsity, seed)
    if sparsity is not None and function.sparsity != sparsity:
        requirement = f"{function.sparsity}, the number of bits of {name!r} (or None)"
        raise bad_argument("sparsity", "make_rule", requirement, sparsity)
    return HiddenRule(function, context_length, bit_probability, label_noise)


def _named_function(name: Any, sparsity: Any, seed: int) -> BooleanFunction:
    family, colon, value = name.partition(":") if isinstance(name, str) else ("", "", "")
    if family == "table" and colon:
        n_bits = len(value).bit_length() - 1
        if not re.fullmatch("[01]{2,}", value) or len(value) != 2**n_bits:
            requirement = "'table:' and 2^s digits 0 and 1"
            raise bad_argument("name", "make_rule", requirement, repr(name))
        return TruthTable(range(n_bits), [int(digit) for digit in value])
    if family == "profile" and re.fullmatch("[01]{2,}", value):
        return Symmetric(range(len(value) - 1), [int(digit) for digit in value])
    if re.search(r"x[0-9]", str(name)):
        return parse(name)
    counted = family in COUNTED and re.fullmatch("[0-9]+", value)
    if not counted and name not in (*FAMILIES, "table"):
        raise bad_argument("name", "make_rule", f"one of {RULE_NAMES}", repr(name))
    s = as_whole(sparsity, "sparsity", "make_rule")
    if counted:
        return COUNTED[family](range(s), int(value))
    return FAMILIES[name](range(s)) if name in FAMILIES else _random_table(s, seed)


def _random_table(s: int, seed: int) -> TruthTable:
    """Uniform among the truth tables in which all bits matter."""
    if s > MAX_RANDOM_TABLE_BITS:
        requirement = f"at most {MAX_RANDOM_TABLE_BITS} for a random truth table"
        raise bad_argument("sparsity", "make_rule", requirement, s)
    rng = generator("random truth table", s, seed)
    while True:  # at s = 1 half of the tables are constant, and fewer with every bit more
        table = TruthTable(range(s), rng.integers(0, 2, 2**s))
        if len(relevant_indices(table)) == s:
            return table


def _binary_digits(probability: float) -> list[int]:
    """The digits of p = 0.d₁d₂…, rounded to `PROBABILITY_BITS`, without zeros at the end."""
    scaled = min(max(round(probability * 2**PROBABILITY_BITS), 1), 2**PROBABILITY_BITS - 1)
    return [int(digit) for digit in f"{scaled:0{PROBABILITY_BITS}b}".rstrip("0")]


def _check_generator(rng: Any, owner: str) -> None:
    if not isinstance(rng, np.random.Generator):
        requirement = "a NumPy generator, such as np.random.default_rng(0)"
        raise bad_argument("rng", owner, requirement, repr(rng))


def _check_function(function: Any) -> None:
    if not isinstance(function, BooleanFunction):
        requirement = "a BooleanFunction (`make_rule` takes names)"
        raise bad_argument("function", "HiddenRule", requirement, repr(function))
    profile = find_profile(function)
    values = function.table() if profile is None else profile
    if not np.isin(values, (0, 1)).all():
        requirement = "a rule with the values 0 and 1"
        raise bad_argument("function", "HiddenRule", requirement, repr(function))
    relevant = relevant_indices(function)
    if not relevant:
        raise InputError(
            f"{function!r} is constant: its label says nothing about where its bits are. "
            "Choose a rule that depends on them."
        )
    if idle := sorted(set(function.indices) - set(relevant)):
        names = ", ".join(f"x{each}" for each in idle)
        raise InputError(
            f"{function!r} does not depend on {names}, so that no sample shows where that bit is. "
            "Give the rule in fewer bits (`boolean.simplify`)."
        )
