"""Attention by a matrix S that is written pair by pair: linear attention, the delta rule."""
