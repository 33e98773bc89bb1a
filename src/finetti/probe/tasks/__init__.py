"""Hidden rules: their tasks, samples, information, and the sets that fit a sample."""
