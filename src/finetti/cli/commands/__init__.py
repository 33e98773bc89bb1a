"""One file per command: parse, call the verb, present."""
