"""Arithmetic: float64 inside float32 programs, logarithms, special functions."""
