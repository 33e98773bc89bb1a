"""Random-feature attention of paper R and its infinite-head kernels."""
