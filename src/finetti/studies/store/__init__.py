"""The store of a study: one SQLite file with one writer, whose rows prove that they are whole."""
