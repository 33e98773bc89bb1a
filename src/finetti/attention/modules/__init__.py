"""Attention modules whose weights are found row by row: softmax, smoother, local lines."""
