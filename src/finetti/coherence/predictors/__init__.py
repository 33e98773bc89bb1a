"""What a target is turned into, one file for each kind."""
