"""Bounds of paper E: covering numbers, generalization and approximation, free of L."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
