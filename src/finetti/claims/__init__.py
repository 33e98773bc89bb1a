"""The ledger: one small file per claim of a paper, with its statement, evidence and verdict."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
