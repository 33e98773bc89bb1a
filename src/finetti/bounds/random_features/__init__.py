"""Paper R, random features (`fu2023`): norms of targets, excess risk of random heads."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
