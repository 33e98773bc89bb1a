"""Is an in-context learner Bayesian? Order, martingale and two-step defects; distance to truth."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
