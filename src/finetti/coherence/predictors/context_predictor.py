"""The three kinds of predictors, and what is checked of their answers."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from finetti.core.arguments import Floats, Letters
from finetti.core.errors import InputError
from finetti.core.numerics.extremes import largest_of
from finetti.latent.predictive_laws import Gaussian, choose
from finetti.latent.world import Pairs
from finetti.models.answers import as_numbers, named_errors, refuse_change

LINEAR_RTOL, N_TRIALS = 1e-9, 5
# Rounding that a target may add up over its operations, in units of its precision: 1e-4 of an
# answer in float32, and in float64 nothing that other tolerances do not forgive.
ROUNDINGS = 1000
DOUBLE = float(np.finfo(np.float64).eps)
SUM_TOL = 1e-5  # probabilities in float32


class RegressionPredictor(ABC):
    """Abstract: reads B contexts of pairs, and answers Q queries of each.

    The answer to a query is m(q; X), perhaps with a variance: then it is a law N(m, s²), the noise
    of a new value included. Every answer is checked: its shape, that it is finite, and, the first
    time, that two equal calls agree.

    Attributes:
        name: for tables.
        linear: whether answers are affine in the values, with weights that do not depend on them;
            None where that is tried out.
        categorical: whether values are one-hot classes, and answers their probabilities.
        gives_variance: whether answers come with a variance; None where only an answer tells.
        noise_variance: of a new value, where the target gives no variance of its own; or None.
        precision: the relative one of the coarsest answer so far, 1.2e-7 in float32.
    """

    name: str = ""
    linear: bool | None = None
    categorical: bool = False
    gives_variance: bool | None = False
    noise_variance: float | None = None
    precision: float = DOUBLE
    _tried: bool = False

    @abstractmethod
    def answer(
        self, query: Floats, keys: Floats, values: Floats, variance: bool
    ) -> tuple[Floats, Floats | None]:
        """m, and s² where ``variance`` asks for it and the target gives one."""

    @property
    def has_law(self) -> bool:
        """Whether there is a predictive law."""
        return bool(self.gives_variance) or self.noise_variance is not None

    @property
    def rounding(self) -> float:
        """Return the rounding error of a difference between answers of size 1."""
        return ROUNDINGS * self.precision

    def mean(self, query: Floats, keys: Floats, values: Floats) -> Floats:
        """m(q; X), (B, Q, d_v), of queries (B, Q, d_k), keys (B, L, d_k), values (B, L, d_v)."""
        return self._answer(query, keys, values, False)[0]

    def law(self, query: Floats, keys: Floats, values: Floats) -> Gaussian | None:
        """The predictive law of a new value, noise included; None where the target has none."""
        if self.gives_variance is None:
            self.mean(query, keys, values)
        if not self.has_law:
            return None
        mean, variance = self._answer(query, keys, values, True)
        return Gaussian(mean, variance=variance)

    def is_linear(self, query: Floats, keys: Floats, values: Floats) -> bool:
        """Whether answers are affine in the values; tried on combinations of some, if not said.

        At the queries and between neighboring keys: what splits the context by its values shows it
        there. What was found not to be linear stays so; what looked linear is tried again.
        """
        if self.linear is not None:
            return self.linear
        rng = np.random.default_rng(0)
        size = float(np.std(values)) if values.size else 1.0
        places = np.concatenate([query, (keys[:, 1:] + keys[:, :-1]) / 2], axis=1)
        given = values + size * rng.normal(size=(N_TRIALS, *values.shape))
        answers = [self.mean(places, keys, each) for each in given]
        limit = largest_of(LINEAR_RTOL, self.rounding) * (np.abs(answers).max() + size)
        for index, share in enumerate(np.linspace(-1.0, 0.9, N_TRIALS)):
            ends, found = (given[index - 1], given[index]), (answers[index - 1], answers[index])
            mixed = self.mean(places, keys, share * ends[0] + (1 - share) * ends[1])
            if np.abs(mixed - share * found[0] - (1 - share) * found[1]).max() > limit:
                self.linear = False
                return False
        return True

    def _answer(
        self, query: Floats, keys: Floats, values: Floats, variance: bool
    ) -> tuple[Floats, Any]:
        asked = np.shape(query)[:2]
        wanted = (*asked, np.shape(values)[2])
        with named_errors(self.name):
            given = self.answer(query, keys, values, variance)
            again = None if self._tried else self.answer(query, keys, values, variance)
        found = self._checked(given, wanted, variance)
        if again is not None:
            again = self._checked(again, wanted, variance)
            for first, second in zip(found, again, strict=True):
                refuse_change(self.name, first, second)
            self._tried = True
        return found

    def _checked(
        self, found: tuple[Any, Any], wanted: tuple[int, ...], variance: bool
    ) -> tuple[Floats, Any]:
        mean, spread = found
        self.precision = largest_of(self.precision, precision_of(mean), precision_of(spread))
        mean = as_numbers(self.name, mean, wanted, "a mean")
        if not variance:
            return mean, None
        if not self.gives_variance:
            spread = np.full(wanted, self.noise_variance)
        spread = as_numbers(self.name, _for_all_entries(spread, wanted), wanted, "a variance")
        if spread.min(initial=1.0) <= 0:
            raise InputError(
                f"{self.name} answered with a variance of {spread.min():.3g}, not > 0."
            )
        return mean, spread


class AlphabetPredictor(ABC):
    """Abstract: reads B sequences of letters, and gives the probabilities of the next one.

    Attributes:
        name: for tables.
        n_letters: c; letters are 0, …, c − 1.
        precision: the relative one of the coarsest answer so far, 1.2e-7 in float32.
    """

    name: str = ""
    n_letters: int
    precision: float = DOUBLE
    _tried: bool = False

    @abstractmethod
    def answer(self, tokens: Letters) -> Floats:
        """Probabilities (B, c)."""

    @property
    def rounding(self) -> float:
        """Return the rounding error of a difference between probabilities."""
        return ROUNDINGS * self.precision

    def predictive(self, tokens: Letters) -> Floats:
        """p(x | X), (B, c), of tokens (B, L)."""
        found = self._checked(tokens)
        if not self._tried:
            refuse_change(self.name, found, self._checked(tokens))
            self._tried = True
        return found

    def _checked(self, tokens: Letters) -> Floats:
        wanted = len(tokens), self.n_letters
        with named_errors(self.name):
            given = self.answer(tokens)
        self.precision = largest_of(self.precision, precision_of(given))
        found = as_numbers(self.name, given, wanted, "probabilities", calls=1)
        total = found.sum(axis=1, keepdims=True)
        if found.min(initial=0.0) < 0 or np.abs(total - 1).max(initial=0.0) > SUM_TOL:
            raise InputError(
                f"{self.name} answered with numbers that are no probabilities: the least is "
                f"{found.min():.3g}, and sums go from {total.min():.6g} to {total.max():.6g}. Give "
                "nonnegative numbers of sum 1, such as a softmax over the letters."
            )
        return found / total


class SampledPredictor(ABC):
    """Abstract: can only be asked for draws of the next token, or of the value at a query.

    Attributes:
        name: for tables.
        n_letters: c where tokens are letters; None where they are pairs.
    """

    name: str = ""
    n_letters: int | None = None

    @abstractmethod
    def answer(self, rng: np.random.Generator, context: Any, query: Any, count: int) -> Any:
        """Draws for each of B contexts: letters (count, B), or values (count, B, d_v) at queries
        (B, d_k)."""

    def sample(
        self, rng: np.random.Generator, context: Any, query: Any = None, count: int = 1
    ) -> Any:
        """``count`` draws after each context: letters (B, L), or `Pairs` and queries (B, d_k)."""
        with named_errors(self.name):
            found = self.answer(rng, context, query, count)
        if self.n_letters is None:
            wanted = count, len(context.values), context.values.shape[2]
            return as_numbers(self.name, found, wanted, "draws")
        letters = as_numbers(self.name, found, (count, len(context)), "draws").astype(np.intp)
        if letters.size and not 0 <= letters.min() <= letters.max() < self.n_letters:
            raise InputError(
                f"{self.name} drew letters {letters.min()} to {letters.max()}, of 0 to "
                f"{self.n_letters - 1}."
            )
        return letters


class LawSampler(SampledPredictor):
    """Expose a predictor with a known law through the sampling interface only."""

    def __init__(self, predictor: RegressionPredictor | AlphabetPredictor):
        self.name, self.predictor = predictor.name, predictor
        self.n_letters = getattr(predictor, "n_letters", None)

    def answer(self, rng: np.random.Generator, context: Any, query: Any, count: int) -> Any:
        """Draw from the law."""
        if isinstance(self.predictor, AlphabetPredictor):
            p = self.predictor.predictive(context)
            return choose(rng, p, (count, len(p)))
        law = self.predictor.law(query[:, None], context.keys, context.values)
        if law is None:
            raise no_law(self.predictor.name, "drawn from")
        return law.sample(rng, count)[:, :, 0]


LAW = (
    "Say how noisy a new value is: `--noise-variance` of the command, or "
    "as_predictor(target, noise_variance=…); or give a target that answers with a variance"
)


def no_law(name: str, what: str) -> InputError:
    """The error where a law is needed, and there is none."""
    return InputError(f"{name} answers with a mean and no law, and so cannot be {what}. {LAW}.")


def precision_of(found: Any) -> float:
    """The relative precision of an array; that of float64 for all that is no coarser float."""
    dtype = np.asarray(found).dtype
    return max(DOUBLE, float(np.finfo(dtype).eps)) if dtype.kind == "f" else DOUBLE


def _for_all_entries(variance: Any, wanted: tuple[int, ...]) -> Any:
    """Broadcast one variance per query to all entries of its answer."""
    array = np.asarray(variance)
    array = array[..., None] if array.shape == wanted[:2] else array
    return np.broadcast_to(array, wanted) if array.shape == (*wanted[:2], 1) else array


def repeated(pairs: Pairs, count: int) -> Pairs:
    """Every context ``count`` times, one after the other."""
    return Pairs(*(np.repeat(part, count, axis=0) for part in pairs))
