"""Claims of paper E, exchangeability: attention and latent variable models (`zhang2022`)."""
