"""The command `finetti`: one file per command; parses, calls, prints."""
