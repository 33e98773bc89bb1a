"""Checkpoints: strict readers that never unpickle, a checked mapping, measured norms, bounds."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
