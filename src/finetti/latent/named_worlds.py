"""The worlds by name, for commands and studies."""

from collections.abc import Callable
from typing import Any

from finetti.latent.beta_bernoulli import BetaBernoulli
from finetti.latent.finite_atoms import FiniteAtoms
from finetti.latent.gaussian_process import GaussianProcessWorld
from finetti.latent.instrumental_world import InstrumentalWorld
from finetti.latent.linear_gaussian import LinearGaussian
from finetti.latent.sphere_world import Harmonics, SphereWorld, random_rotations
from finetti.latent.world import LatentModel

# Three atoms that lean to one letter each, so that a few tokens tell them apart.
_LEANING = ((0.7, 0.2, 0.1), (0.1, 0.7, 0.2), (0.2, 0.1, 0.7))


# Their arguments are what commands offer as settings: all of them by name.
def _finite_atoms(
    prior: Any = (0.5, 0.3, 0.2), emission: Any = _LEANING, answers: Any = None
) -> FiniteAtoms:
    return FiniteAtoms(prior, emission, answers)


def _sphere(
    n_atoms: int = 4,
    key_dimension: int = 3,
    seed: int = 0,
    prior: Any = None,
    concentration: float = 10.0,
    harmonics: Harmonics = "linear",
) -> SphereWorld:
    rotations = random_rotations(seed, n_atoms, key_dimension)
    return SphereWorld(rotations, prior, concentration, harmonics)


# A name → what makes that world; keyword arguments change its defaults.
worlds: dict[str, Callable[..., LatentModel]] = {
    BetaBernoulli.name: BetaBernoulli,
    FiniteAtoms.name: _finite_atoms,
    LinearGaussian.name: LinearGaussian,
    GaussianProcessWorld.name: GaussianProcessWorld,
    SphereWorld.name: _sphere,
    InstrumentalWorld.name: InstrumentalWorld,
}
