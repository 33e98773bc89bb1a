"""How many samples does a learner need to find a sparse hidden rule?"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
