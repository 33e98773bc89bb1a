"""Paper S, sparse variables (`edelman2022`): heads, layers and deep networks of bounded norms."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
