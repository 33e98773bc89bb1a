"""Ridge regression on random features of sets, and its limit of infinitely many."""
