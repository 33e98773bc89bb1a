"""The heads of Lemmas B.2, B.3 and B.4: weights, and what they compute."""
