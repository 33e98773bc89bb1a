"""Rules made of sparse gates, as networks with one block per level (beyond the paper)."""
