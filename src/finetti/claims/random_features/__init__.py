"""Claims of paper R, random features: what a single attention layer learns (`fu2023`).

The paper's formulas are stated from knowledge of it, not quoted; what follows from its model is
derived here, and the claims say which is which.
"""
