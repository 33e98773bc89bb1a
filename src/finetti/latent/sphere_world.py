"""Keys and values on unit spheres, turned by a hidden rotation: the setting of Proposition 4.2."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from scipy.linalg import helmert

from finetti.core.arguments import Floats, as_answers, as_generator, as_positive, as_vectors
from finetti.core.checked_fields import Checked, checked, one_of
from finetti.core.errors import bad_argument
from finetti.core.numerics.sphere_integrals import mean_resultant, sphere_constants
from finetti.display.card import Card
from finetti.latent.predictive_laws import (
    AtomMixture,
    Categorical,
    as_probabilities,
    atom_posterior,
    log_evidence,
)
from finetti.latent.world import (
    LatentModel,
    Pairs,
    WorldDraw,
    as_pairs,
    as_query,
    as_sampling,
)

Harmonics = Literal["linear", "mixed"]


UNIT_TOL = 1e-9  # what counts as a vector of length 1


@dataclass(frozen=True, eq=False)
class DirectionComponents:
    """p(v | direction) = exp(κ vᵀu) / C_0(κ) on S^{d−1}, for directions u (n, a, d).

    E[v] = A_d(κ) u with A_d = I_{d/2}/I_{d/2−1}, which `core.mean_resultant` gives.

    >>> law = DirectionComponents(np.array([[[1.0, 0.0, 0.0]]]), concentration=10.0)
    >>> law.mean.round(3).tolist(), law.variance.round(3).tolist()  # 1/tanh(10) − 1/10
    ([[[0.9, 0.0, 0.0]]], [[[0.01, 0.09, 0.09]]])
    """

    directions: Floats
    concentration: float

    @property
    def resultant(self) -> float:
        """A_d(κ), the length of the mean."""
        return mean_resultant(self.directions.shape[-1], self.concentration)

    @property
    def mean(self) -> Floats:
        """A_d(κ) u."""
        return self.resultant * self.directions

    @property
    def variance(self) -> Floats:
        """Of every entry: A/κ + (1 − dA/κ − A²)u_i²."""
        d, length = self.directions.shape[-1], self.resultant
        across = length / self.concentration
        return across + (1 - d * across - length**2) * self.directions**2

    def log_prob(self, v: Any) -> Floats:
        """The log density of one vector per sequence under every component, (…, n, a)."""
        shape = len(self.directions), self.directions.shape[2]
        points = as_answers(v, shape, "v", "DirectionComponents.log_prob")
        cosines = np.einsum("nad,...nd->...na", self.directions, points)
        log_area = np.log(sphere_constants(self.directions.shape[-1], self.concentration).c0)
        is_unit = np.abs(np.linalg.norm(points, axis=-1) - 1) <= UNIT_TOL
        return np.where(is_unit[..., None], self.concentration * cosines - log_area, -np.inf)

    def sample(self, rng: Any, atoms: Any) -> Floats:
        """One vector for each entry of ``atoms`` (…, n), around the direction of that atom."""
        chosen = self.directions[np.arange(len(self.directions)), atoms]
        return draw_around(as_generator(rng, "DirectionComponents"), chosen, self.concentration)


def draw_around(rng: np.random.Generator, directions: Floats, concentration: float) -> Floats:
    """A von Mises–Fisher vector around each direction, along the last axis."""
    from scipy.stats import vonmises_fisher  # slow to import, and needed to draw only

    d = directions.shape[-1]
    pole = np.eye(d)[0]
    count = int(np.prod(directions.shape[:-1]))
    law: Any = vonmises_fisher  # whose stub asks for whole concentrations
    around = law(pole, concentration).rvs(max(count, 1), random_state=rng)
    around = np.reshape(around, (-1, d))[:count].reshape(directions.shape)
    # The reflection that takes the pole to the direction keeps the law around it.
    normal = pole - directions
    squared = (normal**2).sum(axis=-1, keepdims=True)
    along = (normal * around).sum(axis=-1, keepdims=True) / np.where(squared > 0, squared, 1.0)
    return around - 2 * along * normal


def random_rotations(rng: Any, n_atoms: int, dimension: int) -> Floats:
    """Orthogonal matrices (a, d, d), uniform over all of them."""
    normal = as_generator(rng, "random_rotations").normal(size=(n_atoms, dimension, dimension))
    orthogonal, upper = np.linalg.qr(normal)
    return orthogonal * np.sign(np.diagonal(upper, axis1=1, axis2=2))[:, None]


def quadratic_harmonics(points: Floats) -> Floats:
    """An orthonormal set of harmonics of degree 2 at unit vectors, itself of length 1.

    The entries of kkᵀ − I/d in an orthonormal basis of symmetric matrices of trace 0, divided by
    √(1 − 1/d); there are d(d + 1)/2 − 1 of them.

    >>> angle = 0.3
    >>> quadratic_harmonics(np.array([np.cos(angle), np.sin(angle)])).round(6)  # sin 2φ, cos 2φ
    array([0.564642, 0.825336])
    """
    d = points.shape[-1]
    rows, columns = np.triu_indices(d, 1)
    mixed = np.sqrt(2) * points[..., rows] * points[..., columns]
    pure = points**2 @ helmert(d).T
    return np.concatenate([mixed, pure], axis=-1) / np.sqrt(1 - 1 / d)


def _as_rotations(value: Any, name: str, owner: str) -> Floats:
    """Orthogonal matrices (a, d, d)."""
    turns = as_vectors(value, ("a", "d", "d"), name, owner)
    n_atoms, d = turns.shape[:2]
    if turns.shape[2] != d or d < 2 or not n_atoms:
        wanted = "of shape (a, d, d) with a ≥ 1 and d ≥ 2"
        raise bad_argument(name, owner, wanted, f"shape {turns.shape}")
    miss = np.abs(turns @ np.swapaxes(turns, 1, 2) - np.eye(d)).max()
    if miss > UNIT_TOL:
        got = f"matrices with |MMᵀ − I| up to {miss:.3g}"
        raise bad_argument(name, owner, "orthogonal matrices", got)
    return turns


class SphereWorld(Checked, LatentModel, eq=False):
    """Keys k uniform on S^{d−1}, values v ∼ von Mises–Fisher around u(M_z k), z one of a atoms.

    E[V | K = k, z] = A(κ) u(M_z k),  and the limit of softmax attention is
    m(q) = E[V exp(s Kᵀq)] / E[exp(s Kᵀq)] = A(κ) Σ_j h_j(s) u_j(M_z q)

    where u_j is the part of u of harmonic degree j and h_j(s) = I_{d/2−1+j}(s)/I_{d/2−1}(s)
    (Funk–Hecke). With u(k) = k that is proportional to E[V | K = q]; with mixed degrees it is not.

    Args:
        rotations: M_z, orthogonal, (a, d, d); `random_rotations` draws some.
        prior: p(z), (a,); uniform by default.
        concentration: κ of the values around their direction.
        harmonics: "linear", u(k) = k; or "mixed", u(k) = (k, quadratic_harmonics(k))/√2.

    >>> world = SphereWorld(random_rotations(0, n_atoms=2, dimension=3))
    >>> draw = world.sample(1, n_sequences=1, context_length=5)
    >>> bool(world.posterior(draw.tokens).probabilities[0, draw.latent[0]] > 0.99)
    True
    >>> limit = world.smoother_limit(draw.latent, draw.query)
    >>> (limit / world.conditional_mean(draw.latent, draw.query)).round(4)  # A_3(1)
    array([[0.313, 0.313, 0.313]])

    Reference: Proposition 4.2 and its caveat (erratum 4), zhang2022.
    """

    rotations: Any = checked(_as_rotations)
    prior: Any = None
    concentration: float = checked(as_positive, 10.0)
    harmonics: Harmonics = checked(one_of(*get_args(Harmonics)), "linear")
    name: ClassVar[str] = "sphere"

    def __post_init__(self) -> None:
        super().__post_init__()
        owner, n_atoms = "SphereWorld", len(self.rotations)
        prior = np.full(n_atoms, 1 / n_atoms) if self.prior is None else self.prior
        prior = as_probabilities(prior, "prior", owner)
        if prior.shape != (n_atoms,):
            raise bad_argument("prior", owner, f"of shape ({n_atoms},)", f"shape {prior.shape}")
        object.__setattr__(self, "prior", prior)
        if not sphere_constants(self.value_dimension, self.concentration).c0 > 0:
            wanted = "of a dimension whose sphere has an area that float64 can hold"
            raise bad_argument("rotations", owner, wanted, f"{self.value_dimension} for the values")

    @property
    def key_dimension(self) -> int:
        """d of the keys."""
        return self.rotations.shape[1]

    @property
    def value_dimension(self) -> int:
        """d, or d + d(d + 1)/2 − 1 of mixed degrees."""
        d = self.key_dimension
        return d if self.harmonics == "linear" else d + d * (d + 1) // 2 - 1

    def sample(self, rng: Any, n_sequences: int, context_length: int) -> WorldDraw:
        """An atom for each sequence, uniform keys, and values around u(M_z k)."""
        rng, n, length = as_sampling(rng, n_sequences, context_length, self)
        atoms = rng.choice(len(self.prior), size=n, p=self.prior)
        keys = rng.normal(size=(n, length + 1, self.key_dimension))
        keys = keys / np.linalg.norm(keys, axis=2, keepdims=True)
        directions = self._directions(keys, self.rotations[atoms, None])
        values = draw_around(rng, directions, self.concentration)
        return WorldDraw(Pairs(keys[:, :-1], values[:, :-1]), keys[:, -1], values[:, -1], atoms)

    def log_likelihood(self, tokens: Any) -> Floats:
        """Σ_ℓ log p(v_ℓ | k_ℓ, z) of every sequence and atom, (n, a)."""
        keys, values = as_pairs(tokens, self.key_dimension, self.value_dimension, "SphereWorld")
        _check_unit(keys, "keys")
        _check_unit(values, "values")
        logs = [
            self._components(keys[:, position]).log_prob(values[:, position])
            for position in range(keys.shape[1])
        ]
        return np.sum(logs, axis=0) if logs else np.zeros((len(keys), len(self.prior)))

    def log_prob(self, tokens: Any) -> Floats:
        """log Σ_z p(z) ∏_ℓ p(v_ℓ | k_ℓ, z), with respect to the area of the sphere."""
        return log_evidence(self.prior, self.log_likelihood(tokens))

    def posterior(self, tokens: Any) -> Categorical:
        """p(z | X), (n, a)."""
        return atom_posterior(self.prior, self.log_likelihood(tokens), "SphereWorld")

    def integrate(self, posterior: Categorical, query: Any = None) -> AtomMixture:
        """Σ_z p(v | query, z) p(z | X)."""
        weights = posterior.probabilities
        place = as_query(query, len(weights), self.key_dimension, "SphereWorld")
        _check_unit(place, "query")
        return AtomMixture(weights, self._components(place))

    def conditional_mean(self, latent: Any, query: Any) -> Floats:
        """E[V | K = q, z] for one atom and query per sequence, (n, d_r)."""
        return self._resultant * np.concatenate(self._parts_at(latent, query), axis=-1)

    def smoother_limit(self, latent: Any, query: Any, scale: float = 1.0) -> Floats:
        """What softmax attention exp(s kᵀq) tends to as the context grows, (n, d_r)."""
        scale = as_positive(scale, "scale", "SphereWorld.smoother_limit")
        shrunk, factor = [], 1.0
        for degree, part in enumerate(self._parts_at(latent, query)):
            # I_{d/2+j} / I_{d/2+j−1} = A_{d+2j}
            factor *= mean_resultant(self.key_dimension + 2 * degree, scale)
            shrunk.append(factor * part)
        return self._resultant * np.concatenate(shrunk, axis=-1)

    @property
    def _resultant(self) -> float:
        return self._components(np.eye(self.key_dimension)[:1]).resultant

    def _components(self, places: Floats) -> DirectionComponents:
        """p(v | k, z) for one place per sequence, all atoms."""
        directions = self._directions(places[:, None], self.rotations)
        return DirectionComponents(directions, self.concentration)

    def _parts(self, places: Floats, turns: Floats) -> list[Floats]:
        """u(Mk) by its harmonic degrees, 1 and perhaps 2."""
        turned = (turns @ places[..., None])[..., 0]
        if self.harmonics == "linear":
            return [turned]
        return [turned / np.sqrt(2), quadratic_harmonics(turned) / np.sqrt(2)]

    def _parts_at(self, latent: Any, query: Any) -> list[Floats]:
        """The same for one atom and query per sequence."""
        atoms = np.asarray(latent, np.intp)
        place = as_query(query, len(atoms), self.key_dimension, "SphereWorld")
        _check_unit(place, "query")
        return self._parts(place, self.rotations[atoms])

    def _directions(self, places: Floats, turns: Floats) -> Floats:
        """u(Mk) as one vector."""
        return np.concatenate(self._parts(places, turns), axis=-1)

    def __card__(self) -> Card:
        fields = (
            ("latent", f"one of {len(self.prior)} rotations of the keys"),
            ("tokens", f"keys uniform on the sphere in {self.key_dimension} dimensions; values on "
             f"that in {self.value_dimension}, {self.harmonics}, κ = {self.concentration:g}"),
            ("answer", "the value at the query"),
            ("posterior", "a sum over the rotations"),
        )  # fmt: skip
        return Card("World: keys and values on spheres", fields)


def _check_unit(vectors: Floats, argument: str) -> None:
    off = np.abs(np.linalg.norm(vectors, axis=-1) - 1)
    if off.size and off.max() > UNIT_TOL:
        got = f"lengths off by up to {off.max():.3g}"
        advice = "Divide them by their lengths."
        raise bad_argument(argument, "SphereWorld", "unit vectors", got, advice)
