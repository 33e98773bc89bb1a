"""What a checkpoint holds: readers that believe nothing, a proven mapping, and measured norms."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
