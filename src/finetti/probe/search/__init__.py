"""The smallest number of samples with which a learner mostly succeeds, in few trials."""
