"""The compiled network: its weights, the tables it runs through, its lookup."""
