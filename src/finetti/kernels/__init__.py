"""Similarity between two tokens: kernels, their Gram matrices and their feature maps."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
