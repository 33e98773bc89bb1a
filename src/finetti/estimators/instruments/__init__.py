"""Regression in two stages, with instruments."""
