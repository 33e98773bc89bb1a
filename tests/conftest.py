"""Tests run strictly: float64 available, no silent promotion of dtypes or ranks."""

import os
import signal

# Workers run side by side; BLAS threads of their own would only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Most of the time goes into compiling thousands of small programs, which run once. Flags that are
# given, such as those of `make test-portable`, come last.
os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0 " + os.environ.get("XLA_FLAGS", "")

import jax
from hypothesis import HealthCheck, settings

# A shell that runs the tests in the background has them ignore Ctrl-C, and with them all that they
# start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

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
