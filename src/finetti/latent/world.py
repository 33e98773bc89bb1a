"""What a world is: tokens that are independent given a latent z, and what follows exactly."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from finetti.core.arguments import Floats, as_generator, as_vectors, as_whole
from finetti.core.errors import bad_argument
from finetti.display.displayable import Displayable


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


class LatentModel(Displayable, ABC):
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

    def encode(self, draw: WorldDraw) -> Encoded:
        """The draw as arrays that a network reads; of pairs c and r side by side."""
        keys, values = draw.tokens
        mask = np.concatenate([draw.query, np.zeros((len(keys), values.shape[2]))], axis=1)
        return Encoded(np.concatenate([keys, values], axis=2), mask, np.asarray(draw.answer, float))

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


def as_sampling(
    rng: Any, n_sequences: Any, context_length: Any, world: LatentModel
) -> tuple[np.random.Generator, int, int]:
    """The arguments of `LatentModel.sample`, checked."""
    owner = f"{type(world).__name__}.sample"
    n = as_whole(n_sequences, "n_sequences", owner, least=0)
    return as_generator(rng, owner), n, as_whole(context_length, "context_length", owner, least=0)


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
