"""One file for each defect: its formula, for letters, for pairs and for draws."""
