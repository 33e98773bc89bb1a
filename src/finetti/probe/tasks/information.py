"""What no learner can do: how many samples the hidden positions need as a matter of information.

With M possible hidden functions, drawn uniformly, and m samples whose labels are 1 with probability
p and flipped with probability η, any learner finds the hidden one with probability at most

    Σ_k Σ_j min( P(k ones and j flips), what is left of C(m, k) · η^j (1−η)^{m−j} / M )

because (i) it succeeds with k ones and j flips at most as often as there are k ones and j flips,
and (ii) given the inputs, each of the C(m, k) label strings with k ones makes it name one function,
which is right with probability η^j (1−η)^{m−j} / M, where j is the number of labels in which they
differ; strings with few flips are worth most. Without noise this is
Σ_k min(P(k), C(m, k)/M) ≤ 2^m/M.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass, field
from functools import partial
from itertools import permutations

import numpy as np
from numpy.typing import NDArray
from scipy import special

from finetti.boolean.language.rule import all_bits
from finetti.core.arguments import as_real, as_whole
from finetti.core.errors import bad_argument
from finetti.core.numerics.extremes import largest_of
from finetti.core.numerics.logspace import log_binomial
from finetti.display import Card, Displayable, Table
from finetti.probe.tasks.hidden_rule import HiddenRule, HiddenTask

MAX_SAMPLES = 10**6  # of the packing bound without noise, a sum of m terms
MAX_NOISY_SAMPLES = 4000  # and with noise: m√m terms, each a convolution
NEGLIGIBLE = 1e-18  # probability of the numbers of flips that are not looked at
MAX_LOG2_TERMS = 24  # of an enumeration: 128 MB
TRIMMED = 1e-25  # probabilities left out of a convolution


def binary_entropy(probability: float) -> float:
    """h(p) = −p log₂ p − (1−p) log₂(1−p), in bits.

    >>> binary_entropy(0.5), round(binary_entropy(1 / 8), 6)
    (1.0, 0.543564)
    """
    p = as_real(probability, "probability", "binary_entropy", "in [0, 1]")
    if not 0 <= p <= 1:
        raise bad_argument("probability", "binary_entropy", "in [0, 1]", p)
    return float((special.entr(p) - special.xlog1py(1 - p, -p)) / math.log(2))


def information_per_sample(rule: HiddenRule) -> float:
    """The most that one label says about the hidden positions: h(noisy label) − h(noise) bits.

    I(hidden; label | input) = H(label | input) − H(label | input, hidden), and conditioning on the
    input does not raise the first entropy.
    """
    p, noise = rule.label_probability, rule.label_noise
    return binary_entropy(p + noise * (1 - 2 * p)) - binary_entropy(noise)


def success_bound(rule: HiddenRule, n_samples: int) -> float:
    """The formula above: no learner finds the hidden function more often (an upper bound, all
    constants kept).

    >>> from finetti.probe.tasks.hidden_rule import make_rule
    >>> rule = make_rule("and", 3, 100)
    >>> [float(f"{success_bound(rule, m):.3g}") for m in (10, 30, 50)]
    [0.00446, 0.516, 0.966]
    """
    m = n_samples if n_samples == 0 else as_whole(n_samples, "n_samples", "success_bound")
    p, noise, log_count = rule.label_probability, rule.label_noise, math.log(rule.n_hypotheses)
    if m > _most_samples(rule):
        requirement = f"at most {_most_samples(rule)} ({MAX_NOISY_SAMPLES} for noisy labels)"
        raise bad_argument("n_samples", "success_bound", requirement, m)
    below, above = special.bdtr(range(m + 1), m, noise), special.bdtrc(range(-1, m), m, noise)
    above[0] = 1.0
    looked_at = np.flatnonzero((below >= NEGLIGIBLE) & (above >= NEGLIGIBLE))
    first, last = looked_at[0], looked_at[-1]
    log_strings = log_binomial(m, np.arange(m + 1))
    log_worth = special.xlogy(looked_at, noise) + special.xlog1py(m - looked_at, -noise) - log_count
    joint = np.stack([_ones_given_flips(m, int(j), p) for j in looked_at])
    joint *= _binomial(m, noise)[looked_at, None]  # P(k ones and j flips)
    with np.errstate(divide="ignore"):
        log_needed = np.log(joint) - log_worth[:, None]  # strings that succeed with j flips
    log_used = np.minimum(np.logaddexp.accumulate(log_needed, axis=0), log_strings)
    # By parts: Σ_j worth_j (U_j − U_{j−1}) = Σ_j (worth_j − worth_{j+1}) U_j, U_j the strings used
    # with at most j flips.
    log_drop = log_worth + math.log1p(-noise / (1 - noise))
    log_drop[-1] = log_worth[-1]
    rest = (below[first - 1] if first else 0.0) + (above[last + 1] if last < m else 0.0)
    return min(1.0, float(np.exp(log_used + log_drop[:, None]).sum() + rest))


def _most_samples(rule: HiddenRule) -> int:
    return MAX_NOISY_SAMPLES if rule.label_noise else MAX_SAMPLES


def _ones_given_flips(m: int, j: int, p: float) -> NDArray[np.float64]:
    """P(k ones) for k = 0, …, m: j flipped labels are 1 with probability 1−p, the others with p."""
    probabilities = np.zeros(m + 1)
    flipped, others = _binomial(j, 1 - p), _binomial(m - j, p)
    start = np.argmax(flipped > TRIMMED) + np.argmax(others > TRIMMED)
    ones = np.convolve(flipped[flipped > TRIMMED], others[others > TRIMMED])
    probabilities[start : start + len(ones)] = ones
    return probabilities


def _binomial(n: int, p: float) -> NDArray[np.float64]:
    """P(k of n) for k = 0, …, n."""
    k = np.arange(n + 1)
    return np.exp(log_binomial(n, k) + special.xlogy(k, p) + special.xlog1py(n - k, -p))


def best_success(rule: HiddenRule, n_samples: int) -> float:
    """How often the best of all learners finds the hidden function, by enumeration at tiny size.

    Σ over samples (x, y) of the largest P(x, y, f) of any hidden f, 2^{(T+1)m} terms.

    >>> from finetti.probe.tasks.hidden_rule import make_rule
    >>> best_success(make_rule("parity", 1, 2), 1)  # it tosses a coin if both bits are the same
    0.75
    """
    m = as_whole(n_samples, "n_samples", "best_success")
    length, p, noise = rule.context_length, rule.bit_probability, rule.label_noise
    log2_terms = (length + 1) * m + math.log2(rule.n_hypotheses)
    if log2_terms > MAX_LOG2_TERMS:
        requirement = f"a rule and a sample with at most 2^{MAX_LOG2_TERMS} terms"
        raise bad_argument("rule", "best_success", requirement, f"2^{log2_terms:.0f}")
    inputs, orders = all_bits(length), permutations(range(length), rule.sparsity)
    every = [HiddenTask(rule, order).labels(inputs) for order in orders]
    functions = np.unique(every, axis=0)  # orders may give the same function
    of_input = np.where(inputs, p, 1 - p).prod(axis=1)
    right = np.stack([1 - functions, functions])  # (label, function, input)
    likelihood = np.where(right, 1 - noise, noise) * of_input
    joint = np.ones((len(functions), 1))
    for _ in range(m):
        joint = np.einsum("fs,yfx->fsyx", joint, likelihood).reshape(len(functions), -1)
    return float(joint.max(axis=0).sum() / len(functions))


@dataclass(frozen=True)
class InformationBounds(Displayable):
    """Numbers of samples below which no learner finds the hidden function with probability
    ``level``.

    Attributes:
        counting: (log₂ M + log₂ level) / (1 + log₂(1−η)), from P(success) ≤ (2(1−η))^m / M; without
            noise and at level 1/2 this is log₂ C(T,s) − 1 for a symmetric rule (an upper bound on
            success, all constants kept).
        packing: the smallest m at which `success_bound` allows ``level`` (the same, and sharper:
            it knows how often the label is 1); None where it is above 10⁶, or 4000 with noise.
        first_order: log₂ M / (h(noisy label) − h(noise)), the leading term of ``packing`` for large
            M: a scaling quantity, not a bound at finite M.

    Reference: Section 5, edelman2022, for the first and the last without noise.
    """

    rule: HiddenRule = field(repr=False)
    level: float
    counting: float
    packing: int | None
    first_order: float

    def __card__(self) -> Card:
        rows = (
            ("counting", self.counting, "lower bound"),
            ("packing", self.packing, "lower bound"),
            ("first order", self.first_order, "scaling"),
        )
        fields = (
            ("hidden functions", self.rule.n_hypotheses),
            ("bits per sample", information_per_sample(self.rule)),
        )
        title = f"Samples needed to find {self.rule.name} with probability {self.level:g}"
        return Card(title, fields, (Table("at least", ("bound", "samples", "kind"), rows),))


def information_bounds(rule: HiddenRule, level: float = 0.5) -> InformationBounds:
    """The information bounds on the critical number of samples.

    Args:
        rule: the family of hidden functions.
        level: the probability of success that is asked for.

    >>> from finetti.probe.tasks.hidden_rule import make_rule
    >>> bounds = information_bounds(make_rule("and", 3, 400))
    >>> round(bounds.counting, 2), bounds.packing, round(bounds.first_order, 2)
    (22.34, 42, 42.93)
    """
    level = as_real(level, "level", "information_bounds", "in (0, 1]")
    if not 0 < level <= 1:
        raise bad_argument("level", "information_bounds", "in (0, 1]", level)
    log2_count = math.log2(rule.n_hypotheses)
    first_order = log2_count / information_per_sample(rule)
    counting = (log2_count + math.log2(level)) / (1 + math.log2(1 - rule.label_noise))
    counting = largest_of(counting, 0.0)
    packing = _smallest_allowed(rule, level, math.ceil(counting - 1e-9))
    return InformationBounds(rule, level, counting, packing, first_order)


def _smallest_allowed(rule: HiddenRule, level: float, low: int) -> int | None:
    """The smallest m ≥ low with `success_bound` ≥ level."""
    goal = level * (1 - 1e-12)  # of a sum that may be 1
    high = max(low, math.ceil(math.log2(rule.n_hypotheses) / information_per_sample(rule)), 1)
    while high <= _most_samples(rule):
        if success_bound(rule, high) >= goal:
            allowed = partial(success_bound, rule)
            return bisect_left(range(high), goal, low, key=allowed)
        low, high = high + 1, 2 * high
    return None
