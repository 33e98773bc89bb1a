"""Incremental decoding: states that grow by one key and value at a time."""
