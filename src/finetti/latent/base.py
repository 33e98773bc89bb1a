"""What a world is: tokens that are independent given a latent z, and what follows exactly."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from finetti.core.arrays import check_finite
from finetti.core.errors import bad_argument
from finetti.show.shown import Shown

Floats = NDArray[np.floating[Any]]  # float64 throughout
Letters = NDArray[np.integer]


class Pairs(NamedTuple):
    """Tokens x_ℓ = (c_ℓ, r_ℓ): a place and what was seen there, (n, L, d_c) and (n, L, d_r)."""

    keys: Floats
    values: Floats


@dataclass(frozen=True, eq=False)
class WorldDraw:
    """n sequences of a world.

    Args:
        tokens: in the world's own form: letters (n, L), vectors (n, L, d), or `Pairs`.
        query: (n, d_c), where an answer is asked for; None where tokens have no place.
        answer: the next token, or the value at the query: (n,) or (n, d_y).
        latent: z of each sequence.
    """

    tokens: Any
    query: Any
    answer: Any
    latent: Any


class Encoded(NamedTuple):
    """What a network reads, and what it should answer."""

    tokens: Floats  # (n, L, d): c and r side by side, or one-hot letters
    mask_token: Floats  # (n, d): (c at the query, 0)
    target: Floats  # (n, d_y): the answer; E[target | tokens] is `predict(...).mean`


class LatentModel(Shown, ABC):
    """Abstract: a world. Every method is exact, and goes over the n sequences of its arguments.

    p(x_1, …, x_L) = ∫ ∏_ℓ p(x_ℓ | z) p(z) dz  and  p(y | X) = ∫ p(y | z) p(z | X) dz

    Keys of `Pairs` are given rather than modeled: their law does not depend on z, so that it drops
    out of every posterior, and ``log_prob`` is that of the values given the keys.

    Reference: Proposition 3.1 and (3.1), zhang2022.
    """

    name: ClassVar[str]

    @property
    def answers_next_token(self) -> bool:
        """Whether an answer is a token, so that it can be appended to the context."""
        return True

    @abstractmethod
    def sample(self, rng: Any, n_sequences: int, context_length: int) -> WorldDraw:
        """n times: z, then L tokens and an answer given z; ``rng`` is a Generator or a seed."""

    @abstractmethod
    def log_prob(self, tokens: Any) -> Floats:
        """log ∫ ∏_ℓ p(x_ℓ | z) p(z) dz of every sequence, (n,)."""

    @abstractmethod
    def posterior(self, tokens: Any) -> Any:
        """p(z | X): has ``mean``, ``log_prob(z)`` and ``sample(rng)``, in the shape of z."""

    @abstractmethod
    def integrate(self, posterior: Any, query: Any = None) -> Any:
        """∫ p(y | z) p(z | X) dz: the answer from the posterior alone, which is all it needs."""

    @abstractmethod
    def encode(self, draw: WorldDraw) -> Encoded:
        """The draw as arrays that a network reads."""

    def predict(self, tokens: Any, query: Any = None) -> Any:
        """p(y | X): infer z, then integrate it out (3.1).

        A law with ``mean``, ``variance``, ``log_prob(y)`` and ``sample(rng)``; f*(X) is its mean.
        """
        return self.integrate(self.posterior(tokens), query)


def append_token(tokens: Any, answer: Any, query: Any = None) -> Any:
    """The context with one more token: the answer, at the query where tokens have one.

    >>> append_token(np.array([[0, 1]]), np.array([1]))
    array([[0, 1, 1]])
    """
    if isinstance(tokens, Pairs):
        places = as_query(query, len(tokens.keys), tokens.keys.shape[2], "append_token")
        new = places[:, None], np.asarray(answer)[:, None]
        return Pairs(*map(_joined, tokens, new))
    return _joined(np.asarray(tokens), np.asarray(answer)[:, None])


def _joined(first: Any, second: Any) -> Any:
    return np.concatenate([first, second], axis=1)


def reorder(tokens: Any, positions: Any) -> Any:
    """The tokens at these positions, in this order, of every sequence.

    >>> reorder(np.array([[3, 4, 5]]), [2, 0])
    array([[5, 3]])
    """
    chosen = np.asarray(positions, dtype=np.intp)
    if isinstance(tokens, Pairs):
        return Pairs(tokens.keys[:, chosen], tokens.values[:, chosen])
    return np.asarray(tokens)[:, chosen]


def as_generator(rng: Any, owner: str) -> np.random.Generator:
    """The generator itself, or that of a seed. There is no default: randomness is never hidden."""
    if isinstance(rng, np.random.Generator):
        return rng
    if isinstance(rng, bool) or not isinstance(rng, int | np.integer) or rng < 0:
        raise bad_argument("rng", owner, "a NumPy Generator or a seed ≥ 0", repr(rng))
    return np.random.default_rng(int(rng))


def as_length(value: Any, argument: str, owner: str) -> int:
    """A whole number ≥ 0: a context may be empty."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise bad_argument(argument, owner, "a whole number ≥ 0", repr(value))
    return int(value)


def as_sampling(
    rng: Any, n_sequences: Any, context_length: Any, world: LatentModel
) -> tuple[np.random.Generator, int, int]:
    """The arguments of `LatentModel.sample`, checked."""
    owner = f"{type(world).__name__}.sample"
    n = as_length(n_sequences, "n_sequences", owner)
    return as_generator(rng, owner), n, as_length(context_length, "context_length", owner)


def as_letters(tokens: Any, n_letters: int, owner: str) -> Letters:
    """Letters 0, …, n_letters − 1 of shape (n, L)."""
    array = np.asarray(tokens)
    if array.ndim != 2:
        raise bad_argument("tokens", owner, "letters of shape (n, L)", f"shape {array.shape}")
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise bad_argument("tokens", owner, "whole numbers", f"dtype {array.dtype}")
    array = array.astype(np.intp)
    if array.size and not (array.min() >= 0 and array.max() < n_letters):
        wanted = f"letters from 0 to {n_letters - 1}"
        raise bad_argument("tokens", owner, wanted, f"{array.min()} to {array.max()}")
    return array


def as_floats(values: Any, argument: str, owner: str) -> Floats:
    """Numbers of any shape, in float64."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:  # a ragged list, or words
        raise bad_argument(argument, owner, "an array of numbers", type(values).__name__) from error


def as_answers(y: Any, shape: tuple[int, ...], argument: str, owner: str) -> Any:
    """One answer per sequence, of ``shape``; more axes in front are more answers."""
    array = np.asarray(y)
    if array.shape[array.ndim - len(shape) :] != shape:
        wanted = f"of shape (…, {', '.join(map(str, shape))})"
        raise bad_argument(argument, owner, wanted, f"shape {array.shape}")
    check_finite(array, argument, owner)
    return array


def as_vectors(tokens: Any, shape: tuple[Any, ...], argument: str, owner: str) -> Floats:
    """Finite float64 numbers of ``shape``, where text names an axis of any size.

    >>> as_vectors([[1, 2]], ("n", 2), "query", "LinearGaussian")
    array([[1., 2.]])
    """
    array = as_floats(tokens, argument, owner)
    fits = array.ndim == len(shape) and all(
        isinstance(wanted, str) or size == wanted
        for size, wanted in zip(array.shape, shape, strict=True)
    )
    if not fits:
        wanted = f"({', '.join(map(str, shape))})"
        raise bad_argument(argument, owner, f"of shape {wanted}", f"shape {array.shape}")
    check_finite(array, argument, owner)
    return array


def as_pairs(tokens: Any, d_c: int, d_r: int, owner: str) -> Pairs:
    """Keys (n, L, d_c) and values (n, L, d_r)."""
    if not isinstance(tokens, tuple) or len(tokens) != 2:
        wanted = "Pairs(keys, values)"
        raise bad_argument("tokens", owner, wanted, type(tokens).__name__)
    keys = as_vectors(tokens[0], ("n", "L", d_c), "keys", owner)
    return Pairs(keys, as_vectors(tokens[1], (*keys.shape[:2], d_r), "values", owner))


def as_query(query: Any, n_sequences: int, d_c: int, owner: str) -> Floats:
    """The places asked about, (n, d_c)."""
    if query is None:
        advice = "Tokens of this world are pairs: give the key of the answer."
        raise bad_argument("query", owner, f"of shape ({n_sequences}, {d_c})", None, advice)
    return as_vectors(query, (n_sequences, d_c), "query", owner)


def refuse_query(query: Any, owner: str) -> None:
    """Tokens of this world have no place, so there is nowhere to ask."""
    if query is not None:
        advice = "The tokens of this world have no keys; the next one is predicted."
        raise bad_argument("query", owner, "None", type(query).__name__, advice)


def encode_pairs(draw: WorldDraw) -> Encoded:
    """Keys and values side by side; the mask token is the query beside zeros."""
    keys, values = draw.tokens
    mask = np.concatenate([draw.query, np.zeros((len(keys), values.shape[2]))], axis=1)
    return Encoded(np.concatenate([keys, values], axis=2), mask, np.asarray(draw.answer, float))


def one_hot(letters: Any, n_letters: int) -> Floats:
    """The unit vectors of the letters, along a new last axis.

    >>> one_hot([1, 0], 2)
    array([[0., 1.],
           [1., 0.]])
    """
    return np.eye(n_letters)[np.asarray(letters, dtype=np.intp)]
