"""A kind that is compiled: one program for all trials of a shape."""

import jax
import jax.numpy as jnp

from finetti.core import random_key
from finetti.studies import CohortKind


@jax.jit
def norms(keys):
    return jax.vmap(lambda key: jnp.linalg.norm(jax.random.normal(key, (4,))))(keys)


class Norm(CohortKind):
    cohort_size = 8

    def run_cohort(self, trials):
        keys = jnp.stack([random_key(trial.seed) for trial in trials])
        return [{"norm": norm} for norm in norms(keys)]
