"""What is asked of bounds: a size that reaches a gap, a sweep, the answers of several."""
