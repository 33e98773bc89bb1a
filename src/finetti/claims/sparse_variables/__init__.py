"""Claims of paper S: inductive biases and variable creation in self-attention."""
