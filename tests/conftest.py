"""Tests run strictly: float64 available, no silent promotion of dtypes or ranks."""

import jax
from hypothesis import HealthCheck, settings

# The same examples everywhere; and no example is too slow: the first one compiles, and the machine
# may be busy. Fixtures of ours are functions and folders, which examples may share.
settings.register_profile(
    "finetti",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("finetti")

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
