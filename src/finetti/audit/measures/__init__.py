"""Norms of matrices, with certified spectral norms, and of all that a checkpoint holds."""
