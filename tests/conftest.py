"""Tests run strictly: float64 available, no silent promotion of dtypes or ranks."""

import os

# Workers run side by side; BLAS threads of their own would only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Most of the time goes into compiling thousands of small programs, which run once.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

import jax
from hypothesis import settings

settings.register_profile("finetti", deadline=None)  # the first example compiles
settings.load_profile("finetti")

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
