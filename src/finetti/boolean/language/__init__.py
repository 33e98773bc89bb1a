"""Sparse Boolean functions: families, expressions, gates."""
