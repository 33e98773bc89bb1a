"""Whatever a user brings, as one kind of object: networks, estimators, functions and samplers."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
