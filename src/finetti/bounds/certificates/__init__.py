"""Certificates that are not vacuous: the risk of one predictor from its losses and its length."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
