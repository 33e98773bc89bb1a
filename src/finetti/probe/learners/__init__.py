"""Who looks for the hidden rule: the paper's Transformer, baselines, and yours."""
