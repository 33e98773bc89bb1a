"""Heads, layers and deep networks of papers S and E."""
