"""Random-feature attention under the norm limits of its theorem."""
