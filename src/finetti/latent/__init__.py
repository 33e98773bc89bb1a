"""Exchangeable worlds: tokens that hide a latent variable, with exact posteriors and answers."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
