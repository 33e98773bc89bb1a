"""Finetti: the statistics of attention.

Importing this package loads nothing heavy; a room, and with it JAX, is loaded when first used.
"""

import os

import lazy_loader

from finetti._version import __version__ as __version__

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

if _folder := os.environ.get("FINETTI_CACHE"):
    from finetti.core.program_cache import enable_cache as _enable_cache

    _enable_cache(None if _folder == "1" else _folder)
