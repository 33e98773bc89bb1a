"""Traces of a hidden rule in a learner: parities in its output, attention on its positions."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from finetti.boolean.language.families import TruthTable
from finetti.boolean.language.rule import all_bits
from finetti.boolean.language.spectrum import WalshSpectrum, spectrum
from finetti.core.arguments import as_whole
from finetti.core.errors import bad_argument
from finetti.core.statistics.intervals import mean_with_error
from finetti.display import Card, Displayable, Table
from finetti.probe.tasks.hidden_rule import HiddenTask

MAX_HIDDEN_BITS = 12  # whose settings are all run
MAX_SHOWN_SUBSETS = 16

Reals = NDArray[np.float64]


@runtime_checkable
class ShowsAttention(Protocol):
    """A learner that can say where [CLS] looks."""

    def attention(self, params: Any, bits: Any, /) -> Any:
        """Attention weights of [CLS], shape (m, H, T + 1), those on [CLS] itself last."""
        ...


@dataclass(frozen=True, eq=False)
class WalshTrace(Displayable):
    """Walsh–Fourier coefficients of a predictor on the subsets of the hidden positions.

    Attributes:
        found: of the predictor; ``found.coefficients[k]`` belongs to the hidden bits that are 1 in
            k, the first one most significant.
        standard_errors: of each coefficient, from the other bits; 0 where all were run.
        wanted: of the hidden rule itself.
    """

    found: WalshSpectrum
    standard_errors: Reals
    wanted: WalshSpectrum

    def by_degree(self) -> Reals:
        """The mean coefficient of the subsets of 0, 1, …, s bits: comparable between tasks."""
        sizes = all_bits(len(self.found.indices)).sum(axis=1)
        return np.bincount(sizes, self.found.coefficients) / np.bincount(sizes)

    def __card__(self) -> Card:
        order = np.argsort(-np.abs(self.wanted.coefficients), kind="stable")[:MAX_SHOWN_SUBSETS]
        rows = [
            (
                " ".join(f"x{i}" for i, bit in zip(self.found.indices, bits, strict=True) if bit)
                or "1",
                float(self.found.coefficients[k]),
                float(self.standard_errors[k]),
                float(self.wanted.coefficients[k]),
            )
            for k, bits in zip(order, all_bits(len(self.found.indices))[order], strict=True)
        ]
        columns = ("parity of", "coefficient", "standard error", "of the rule")
        return Card("Walsh–Fourier trace", (), (Table("hidden positions", columns, tuple(rows)),))


def walsh_trace(
    predict: Callable[[NDArray[np.uint8]], Any],
    task: HiddenTask,
    rng: np.random.Generator,
    n_backgrounds: int = 256,
) -> WalshTrace:
    """Measure the Walsh–Fourier coefficients of a predictor's output on the hidden bits.

    ĝ(S) = 2^{-s} Σ_{b_I} χ_S(b_I) E[g(b) | b_I] for S ⊆ I, χ_S(b) = Π_{i∈S}(−1)^{b_i}: all 2^s
    settings of the hidden bits, each with the same random settings of the others (all settings, if
    they are not more than ``n_backgrounds``). For fair bits these are the coefficients of g itself.

    Args:
        predict: from bits (m, T) to real numbers (m,): a probability, a difference of logits.
        task: where the hidden bits are.
        rng: draws the other bits.
        n_backgrounds: settings of the other bits.

    >>> from finetti.probe.tasks.hidden_rule import make_rule
    >>> task = HiddenTask(make_rule("and", 2, 30), (4, 9))
    >>> trace = walsh_trace(lambda bits: bits[:, 4], task, np.random.default_rng(0))
    >>> trace.found.coefficients.tolist(), trace.wanted.coefficients.tolist()
    ([0.5, 0.0, -0.5, 0.0], [0.25, -0.25, -0.25, 0.25])

    Reference: R. O'Donnell, "Analysis of Boolean Functions", 2014, chapter 1.
    """
    owner, rule, s = "walsh_trace", task.rule, task.rule.sparsity
    n_backgrounds = as_whole(n_backgrounds, "n_backgrounds", owner)
    if s > MAX_HIDDEN_BITS:
        requirement = f"a task of at most {MAX_HIDDEN_BITS} hidden bits"
        raise bad_argument("task", owner, requirement, f"{s} bits")
    if n_backgrounds < 2 and rule.context_length > s:
        raise bad_argument("n_backgrounds", owner, "at least 2, for a standard error", 1)
    settings, (others, weights) = all_bits(s), _backgrounds(task, rng, n_backgrounds)
    bits = np.repeat(others, len(settings), axis=0)
    bits[:, list(task.indices)] = np.tile(settings, (len(others), 1))
    values = np.asarray(predict(bits), dtype=np.float64)
    if values.shape != bits.shape[:1]:
        requirement = f"a function that returns one number per row, shape {bits.shape[:1]}"
        raise bad_argument("predict", owner, requirement, f"shape {values.shape}")
    values = values.reshape(len(others), len(settings))
    errors = np.zeros(len(settings))
    if weights is None:
        weights = np.full(len(others), 1 / len(others))
        signs = 1 - 2 * (settings.astype(int) @ settings.T % 2)
        errors = mean_with_error(values @ signs / len(settings))[1]
    found = spectrum(TruthTable(task.indices, weights @ values))
    return WalshTrace(found, errors, spectrum(TruthTable(task.indices, rule.function.table())))


def _backgrounds(
    task: HiddenTask, rng: np.random.Generator, most: int
) -> tuple[NDArray[np.uint8], Reals | None]:
    """Settings of all bits; with their probabilities if these are all settings of the others."""
    rule = task.rule
    n_others = rule.context_length - rule.sparsity
    if 2**n_others > most:
        return task.sample(rng, most)[0], None
    rows, p = all_bits(n_others), rule.bit_probability
    bits = np.zeros((len(rows), rule.context_length), np.uint8)
    outside = [t for t in range(rule.context_length) if t not in task.indices]
    bits[:, outside] = rows
    return bits, np.where(rows, p, 1 - p).prod(axis=1)


@dataclass(frozen=True, eq=False)
class AttentionMass(Displayable):
    """The share of attention on the hidden positions, per head.

    Attributes:
        mean: over the samples, shape (H,).
        standard_errors: of these means.
        uniform: s/(T + 1), what a head that looks everywhere has.
    """

    mean: Reals
    standard_errors: Reals
    uniform: float

    def __card__(self) -> Card:
        rows = tuple(zip(range(len(self.mean)), self.mean, self.standard_errors, strict=True))
        table = Table("heads", ("head", "mass on hidden positions", "standard error"), rows)
        return Card("Attention mass", (("uniform", self.uniform),), (table,))


def attention_mass(weights: Any, task: HiddenTask) -> AttentionMass:
    """The share of [CLS]'s attention that lies on the hidden positions.

    Args:
        weights: of shape (m, H, T + 1), those on [CLS] last: what `ShowsAttention.attention` gives.
        task: where the hidden bits are.

    >>> from finetti.probe.tasks.hidden_rule import make_rule
    >>> task = HiddenTask(make_rule("and", 2, 3), (0, 2))
    >>> attention_mass([[[0.5, 0.1, 0.2, 0.2]], [[0.1, 0.1, 0.2, 0.6]]], task).mean.tolist()
    [0.5]
    """
    array, length = np.asarray(weights, dtype=np.float64), task.rule.context_length
    if array.ndim != 3 or array.shape[2] != length + 1 or not len(array):
        requirement = f"of shape (m, H, {length + 1})"
        raise bad_argument("weights", "attention_mass", requirement, f"shape {array.shape}")
    mean, errors = mean_with_error(array[:, :, list(task.indices)].sum(axis=2))
    return AttentionMass(mean, errors, task.rule.sparsity / (length + 1))
