"""Kernel regression on tables: Gaussian processes and local means."""
