"""What a class of attention functions costs: covering numbers, risk bounds, sample sizes."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
