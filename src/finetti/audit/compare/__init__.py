"""Checkpoints compared: with their base, with each other, and with generalization gaps."""
