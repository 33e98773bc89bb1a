"""From a rule to the weights of a network."""
