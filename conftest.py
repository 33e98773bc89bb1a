"""For tests and documentation alike: what the processes of a run share."""

import gc
import os
import signal
from pathlib import Path

from jaxtyping import install_import_hook

# Workers run side by side; BLAS threads of their own would only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Most of the time goes into compiling thousands of small programs, which run once: without
# optimization, by the emitters that take half as long, and each in one piece rather than in 32 (a
# quarter of the rest; the cores have other work). Flags that are given, such as those of
# `make test-portable`, come last and win.
QUICK = (
    "--xla_backend_optimization_level=0",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
)
os.environ["XLA_FLAGS"] = " ".join([*QUICK, os.environ.get("XLA_FLAGS", "")])
# A sixth of the rest went into noting for every operation which line it comes from.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")
os.environ.setdefault("JAX_TRACEBACK_FILTERING", "off")
# A tenth of the time went into looking for garbage among all that had been imported, and nearly
# half of collecting the tests.
gc.set_threshold(20_000, 20, 20)
# Before the package is imported: what its signatures say of shapes is checked at every call. Only
# of modules that have shapes: the hook wraps every function, and calls of the others are slow too.
SOURCE = Path(__file__).parent / "src"
SHAPED = [
    ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    for room in ("attention", "core", "kernels", "risk")
    for path in (SOURCE / "finetti" / room).rglob("*.py")
    if "from jaxtyping import" in path.read_text("utf-8")
]
install_import_hook(SHAPED, "shapes.check_shapes")
# A shell that runs the tests in the background has them ignore Ctrl-C, and with them all that they
# start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure() -> None:
    """Every program is lowered in a context of its own, and JAX loads fifty dialects into each.

    That was a fifth of the time of a small program, and most of its memory. Programs for CPUs are
    functions in the dialects that JAX registers one by one afterwards.
    """
    from jax._src.interpreters import mlir  # now that the environment is set

    mlir.JaxIrContext.load_all_available_dialects = lambda self: self.get_dialect_descriptor("func")


def pytest_collection_finish() -> None:
    """Modules and tests stay: the garbage collector need not look at them again."""
    gc.freeze()
