"""For tests and documentation alike: what the processes of a run share."""

import gc
import os
import platform
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import jaxtyping

from shapes import wrap_shaped

if TYPE_CHECKING:
    from jax._src.lru_cache import LRUCache

ROOT = Path(__file__).parent
pytest_plugins = ("skips",)

# Workers run side by side; BLAS threads of their own would only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Most of the time goes into compiling thousands of small programs, which run once: without
# optimization, by the emitters that take half as long, and each in one piece rather than in 32 (a
# quarter of the rest; the cores have other work). Flags that are given, such as those of
# `make test-portable`, come last and win. With FINETTI_OPTIMIZED programs are compiled as users'.
QUICK = (
    "--xla_backend_optimization_level=0",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
)
if not os.environ.get("FINETTI_OPTIMIZED"):
    os.environ["XLA_FLAGS"] = " ".join([*QUICK, os.environ.get("XLA_FLAGS", "")])
# A sixth of the rest went into noting for every operation which line it comes from.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")
os.environ.setdefault("JAX_TRACEBACK_FILTERING", "off")
# A tenth of the time went into looking for garbage among all that had been imported, and nearly
# half of collecting the tests.
gc.set_threshold(20_000, 20, 20)
# Before the package is imported: what its signatures say of shapes is checked at every call. Only
# of modules that have shapes: the hook wraps every function, and calls of the others are slow too.
SOURCE = ROOT / "src"
SHAPED = [
    ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    for path in SOURCE.rglob("*.py")
    if "from jaxtyping import" in path.read_text("utf-8")
]
jaxtyping.jaxtyped = wrap_shaped
jaxtyping.install_import_hook(SHAPED, "shapes.check_shapes")
# A shell that runs the tests in the background has them ignore Ctrl-C, and with them all that they
# start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure() -> None:
    """Programs are lowered in one context and compiled once, by whichever process comes first.

    These are private names of JAX: a version without them fails here.
    """
    import jax  # now that the environment is set
    from jax._src import lru_cache
    from jax._src.interpreters import mlir

    # JAX makes a context for every program and loads fifty dialects into it: an eighth of the time
    # of the files that were measured, and half of their memory. The dialects that it needs are
    # registered one by one afterwards.
    mlir.JaxIrContext.load_all_available_dialects = lambda self: self.get_dialect_descriptor("func")
    make_context, kept = mlir.make_ir_context, threading.local()

    def shared_context() -> mlir.ir.Context:
        if mlir.ir.Context.current is not None:
            return make_context()  # a program inside of another one would become part of it
        if not hasattr(kept, "context"):
            kept.context = make_context()
        return kept.context

    mlir.make_ir_context = shared_context
    # The folder has what earlier runs compiled, too: what does not change starts at once.
    jax.config.update("jax_compilation_cache_dir", str(ROOT / ".programs" / platform.node()))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    lru_cache.LRUCache.put = put_whole


def put_whole(cache: "LRUCache", key: str, value: bytes) -> None:
    """Store a program under its name when all of it is there: others read at the same time."""
    part = cache.path / f"{key}.{os.getpid()}"
    part.write_bytes(value)
    part.replace(cache.path / f"{key}-cache")


def pytest_collection_finish() -> None:
    """Modules and tests stay: the garbage collector need not look at them again."""
    gc.freeze()
