"""Claims of paper E: attention through exchangeability and latent variable models."""
