"""The bound that a reader compares with: a cover of the ball in which all parameters lie."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
