"""Sets of tokens: how they are read, what is fitted to them, and known ones."""
