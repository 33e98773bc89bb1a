"""Finetti: the statistics of attention.

Importing this package loads nothing heavy; a room, and with it JAX, is loaded when first used.
"""

import lazy_loader

from finetti._version import __version__ as __version__

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
