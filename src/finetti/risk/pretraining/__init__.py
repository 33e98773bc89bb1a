"""Pretraining on masked tokens, and what it carries over to another task."""
