"""Conditional-mean attention: one file per route, the plan that chooses, decoding, the ridge."""
