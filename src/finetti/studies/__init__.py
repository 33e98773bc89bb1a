"""Grids of seeded trials that survive anything: spec → trials → executor → store → table."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
