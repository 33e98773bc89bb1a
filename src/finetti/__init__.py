"""Finetti: the statistics of attention.

Importing this package loads nothing heavy: a subpackage, and with it JAX, is loaded when first
used. There is one function for each command: `run_probe`, `decompose_risk`, `measure_coherence`,
`audit_checkpoint`, `evaluate_bound`, `compile_rule`, `reproduce_claims`, `run_study`. Each returns
an object that prints itself, and has `to_dict`, `page` and `write_page`.
"""

import os

import lazy_loader

from finetti._version import __version__ as __version__

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

if _folder := os.environ.get("FINETTI_CACHE"):
    from finetti.core.program_cache import enable_cache as _enable_cache

    _enable_cache(None if _folder == "1" else _folder)
