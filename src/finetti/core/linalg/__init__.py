"""Factorizations, solves, products and norms of matrices."""
