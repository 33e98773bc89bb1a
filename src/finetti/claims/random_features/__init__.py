"""Claims of paper R: what a single attention layer can learn, through random features.

The paper's formulas are stated from knowledge of it, not quoted; what follows from its model is
derived here, and the claims say which is which.
"""
