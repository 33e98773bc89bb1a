"""Claims that are ours: docs/theory/beyond.md."""
