"""Bounds of paper R: norms of targets, and the excess risk of random-feature attention."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
