"""Tests run strictly: float64 available, no silent promotion of dtypes or ranks."""

import os

import jax
from hypothesis import HealthCheck, settings

# The same examples everywhere, or new ones (`make test-random`); and no example is too slow: the
# first one compiles, and the machine may be busy. Fixtures of ours are functions and folders, which
# examples may share.
common = settings(
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile("same", common, derandomize=True)
settings.register_profile("random", common, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
