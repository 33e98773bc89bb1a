"""Claims of paper S, sparse variables: inductive biases of self-attention (`edelman2022`)."""
