"""Predictors that targets are turned into, one file for each kind."""
